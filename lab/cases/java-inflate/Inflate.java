import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.zip.CRC32;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

/**
 * 64 threads, as a query engine has them. Each task fills a direct buffer with text, compresses it
 * into a second one and passes that on; another task decompresses it and checks the sum. The
 * compressors live in zlib, the buffers behind malloc: the Java heap has neither.
 */
public final class Inflate {
    static final int THREADS = 64;
    static final int TASKS = 2000;
    /** Compressed blocks that wait for their reader. */
    static final int WAITING = 96;

    record Block(int number, int length, ByteBuffer packed) {}

    static final BlockingQueue<Block> waiting = new ArrayBlockingQueue<>(WAITING);
    static final AtomicInteger next = new AtomicInteger();
    static final AtomicLong sum = new AtomicLong();

    public static void main(String[] arguments) throws Exception {
        System.out.println("work");
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < THREADS; i++) {
            Thread thread = new Thread(Inflate::work);
            thread.setDaemon(true);
            threads.add(thread);
            thread.start();
        }
        done.acquire(THREADS);
        for (Block block; (block = waiting.poll()) != null; ) {
            unpack(block);
        }
        System.gc();
        System.out.println("check " + Long.toHexString(sum.get()));
        System.out.println("rest");
        while (System.in.read() >= 0) {}
    }

    static final java.util.concurrent.Semaphore done = new java.util.concurrent.Semaphore(0);

    /** The pool's threads stay when the load is over. */
    static void work() {
        try {
            for (int number; (number = next.getAndIncrement()) < TASKS; ) {
                Block block = pack(number);
                while (!waiting.offer(block)) {
                    Block other = waiting.poll();
                    if (other != null) {
                        unpack(other);
                    }
                }
            }
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
        done.release();
        Object never = new Object();
        synchronized (never) {
            try {
                never.wait();
            } catch (InterruptedException end) {
                return;
            }
        }
    }

    static Block pack(int number) {
        SplittableRandom random = new SplittableRandom(number);
        int length = 32_768 << random.nextInt(6);
        length += random.nextInt(length);
        ByteBuffer plain = ByteBuffer.allocateDirect(length);
        for (int at = 0; at + 8 <= length; at += 8) {
            // Words from a vocabulary of 4,096: compresses to about a quarter.
            plain.putLong(at, (random.nextInt(4096) * 0x9E3779B97F4A7C15L) & 0x7f7f7f7f7f7f7f7fL);
        }
        Deflater deflater = new Deflater(Deflater.BEST_SPEED, true);
        ByteBuffer packed = ByteBuffer.allocateDirect(length + 64);
        CRC32 crc = new CRC32();
        crc.update(plain.duplicate());
        deflater.setInput(plain);
        deflater.finish();
        while (!deflater.finished()) {
            deflater.deflate(packed);
        }
        deflater.end();
        Memory.free(plain);
        packed.flip();
        // What waits is cut to its size, as a page that is sent on.
        ByteBuffer exact = ByteBuffer.allocateDirect(packed.remaining());
        exact.put(packed).flip();
        Memory.free(packed);
        sum.addAndGet(crc.getValue() * (number + 1));
        return new Block(number, length, exact);
    }

    static void unpack(Block block) throws Exception {
        Inflater inflater = new Inflater(true);
        ByteBuffer plain = ByteBuffer.allocateDirect(block.length());
        inflater.setInput(block.packed());
        while (!inflater.finished()) {
            if (inflater.inflate(plain) == 0 && inflater.needsInput()) {
                break;
            }
        }
        inflater.end();
        CRC32 crc = new CRC32();
        plain.flip();
        crc.update(plain);
        sum.addAndGet(-crc.getValue() * (block.number() + 1L) + block.length());
        Memory.free(plain);
        Memory.free(block.packed());
    }

    /** Frees a direct buffer at once, as netty does; the collector would come to it much later. */
    static final class Memory {
        static final sun.misc.Unsafe UNSAFE = unsafe();

        static sun.misc.Unsafe unsafe() {
            try {
                var field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
                field.setAccessible(true);
                return (sun.misc.Unsafe) field.get(null);
            } catch (ReflectiveOperationException error) {
                throw new AssertionError(error);
            }
        }

        static void free(ByteBuffer buffer) {
            UNSAFE.invokeCleaner(buffer);
        }
    }
}
