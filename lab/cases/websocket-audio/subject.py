"""A worker for live audio: bytearrays a connection, uploads by a pool of threads."""

import asyncio
import collections
import hashlib
import json
import signal
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor

from websockets.asyncio.server import unix_serve

SEGMENT = 160_000  # bytes of audio that go to the transcriber at a time
MINUTE = 960_000  # bytes of audio that go to storage at a time: 8 kHz, 16 bits, 60 s
QUEUE = 4  # minutes that wait for their upload, at most

uploads = ThreadPoolExecutor(16)


def upload(audio):
    """Pack and "send" a minute: the storage client copies the body as clients do."""
    body = b"".join([b"--part\r\n", audio, b"\r\n--part--"])
    return hashlib.sha256(body).digest(), len(zlib.compress(body[: len(body) // 8], 1))


class Session:
    """What the worker keeps for a connection."""

    def __init__(self):
        self.segment = bytearray()
        self.minute = bytearray()
        self.queue = collections.deque(maxlen=QUEUE)
        self.words = []
        self.digest = hashlib.sha256()
        self.received = 0

    def transcribe(self, audio):
        """Stand-in for the transcriber: small results that stay as long as the session."""
        levels = [audio[i] for i in range(0, len(audio), 4000)]
        self.words.append({"text": f"word {sum(levels)} " * 4, "levels": levels})
        self.digest.update(repr(levels).encode())

    def feed(self, chunk):
        self.received += len(chunk)
        self.segment.extend(chunk)
        self.minute.extend(chunk)
        if len(self.segment) >= SEGMENT:
            self.transcribe(bytes(self.segment[:SEGMENT]))
            del self.segment[:SEGMENT]
        if len(self.minute) >= MINUTE:
            self.queue.append(bytes(self.minute))
            self.minute = bytearray()

    async def flush(self, loop):
        while self.queue:
            digest, packed = await loop.run_in_executor(uploads, upload, self.queue.popleft())
            self.digest.update(digest)


async def handle(socket):
    session = Session()
    loop = asyncio.get_running_loop()
    async for message in socket:
        if isinstance(message, str):  # the client asks how far the worker is
            await session.flush(loop)
            seen = {"received": session.received, "digest": session.digest.hexdigest()}
            await socket.send(json.dumps(seen))
        else:
            session.feed(message)
            if session.queue:
                await session.flush(loop)


async def main():
    stop = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set_result, None)
    server = await unix_serve(handle, sys.argv[1], compression=None, ping_interval=None)
    await stop
    server.close(close_connections=True)
    await server.wait_closed()


asyncio.run(main())
