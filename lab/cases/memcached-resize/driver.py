"""Fills a memcached with values of many sizes, then has it shrink to 64 MB."""
import os
import socket
import sys
import time

PATH = sys.argv[1]
FILLED = 380_000_000  # bytes of values
LIMIT = 64  # MB
BATCH = 200  # values in a write


def connected():
    """A connection, as soon as the server listens."""
    for _ in range(1000):
        try:
            client = socket.socket(socket.AF_UNIX)
            client.connect(PATH)
            return client
        except OSError:
            time.sleep(0.01)
    sys.exit("memcached does not listen")


def ask(client, question, end):
    """The answer to a command, up to the line `end`."""
    client.sendall(question)
    answer = b""
    while not answer.endswith(end):
        part = client.recv(1 << 16)
        if not part:
            sys.exit("memcached has closed the connection")
        answer += part
    return answer


def slab_bytes(client):
    """What memcached itself says that its slabs take."""
    lines = ask(client, b"stats slabs\r\n", b"END\r\n").split(b"\r\n")
    return next(int(line.split()[2]) for line in lines if b"total_malloced" in line)


def fill(client):
    """Sets values of 100 to 60,000 bytes, most of them small. Returns how many."""
    count, sent, seed = 0, 0, 12345
    while sent < FILLED:
        commands = []
        for _ in range(BATCH):
            seed = (seed * 1103515245 + 12345) % (1 << 31)
            size = 100 + (seed >> 8) % (60_000 if seed % 16 == 0 else 4_000)
            commands.append(b"set k%d 0 0 %d noreply\r\n%b\r\n" % (count, size, b"v" * size))
            count, sent = count + 1, sent + size
        client.sendall(b"".join(commands))
    ask(client, b"version\r\n", b"\r\n")
    return count


client = connected()
print("work", flush=True)
count = fill(client)
ask(client, b"cache_memlimit %d\r\n" % LIMIT, b"OK\r\n")
# The slab rebalancer frees one page after the other, until only those of the limit are left.
last, still = slab_bytes(client), 0
while last > LIMIT << 20 and still < 50:
    time.sleep(0.1)
    now = slab_bytes(client)
    last, still = now, still + 1 if now == last else 0
print("check", count)
print("live", last)
print("rest", flush=True)
sys.stdin.read()
os.kill(int(os.environ["CASE_SUBJECT"]), 15)
