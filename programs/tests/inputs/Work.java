import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.TreeMap;
import java.util.zip.CRC32;
import java.util.zip.Deflater;

/** Direct buffers and zlib come from malloc; threads come and go. Prints sums. */
public class Work {
    public static void main(String[] args) throws InterruptedException {
        var sums = new TreeMap<Integer, Long>();
        var threads = new ArrayList<Thread>();
        for (int n = 0; n < 8; n++) {
            int seed = n;
            var thread = new Thread(() -> {
                long sum = sum(seed);
                synchronized (sums) {
                    sums.put(seed, sum);
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (var thread : threads) {
            thread.join();
        }
        System.out.println(sums);
    }

    static long sum(int seed) {
        var crc = new CRC32();
        for (int i = 1; i < 200; i++) {
            var buffer = ByteBuffer.allocateDirect(i * 1000);
            while (buffer.hasRemaining()) {
                buffer.put((byte) (seed * i));
            }
            var deflater = new Deflater();
            deflater.setInput(buffer.flip());
            deflater.finish();
            var packed = new byte[4096];
            crc.update(packed, 0, deflater.deflate(packed));
            deflater.end();
        }
        return crc.getValue();
    }
}
