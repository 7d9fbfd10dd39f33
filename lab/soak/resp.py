"""Drives a server of the Redis protocol until standard input is closed, and checks every answer.

resp.py [--save | --bursts] PLACE: a Unix socket, or a file whose last word is HOST:PORT. --save
makes the server save itself, which forks. --bursts opens and closes 100 connections at a time.
"""

import os
import random
import select
import socket
import sys
import time

KEYS = 20_000
BATCH = 50
PAUSE = 0.05  # seconds between two batches
BURST = 100  # connections
BETWEEN_BURSTS = 5  # seconds
BETWEEN_SAVES = 60  # seconds
LONGEST = 60  # seconds, for an answer


def place_of(path):
    """The kind of a socket and its address, once the server listens."""
    for _ in range(1000):
        if os.path.exists(path):
            if not os.path.isfile(path):
                return socket.AF_UNIX, path
            words = open(path).read().split()
            if words:
                host, port = words[-1].rsplit(":", 1)
                return socket.AF_INET, (host, int(port))
        time.sleep(0.02)
    sys.exit(f"nothing listens at {path}")


class Client:
    """A connection that sends commands in batches."""

    def __init__(self, place):
        kind, address = place
        self.socket = socket.socket(kind)
        self.socket.settimeout(LONGEST)
        self.socket.connect(address)
        self.answers = self.socket.makefile("rb")

    def close(self):
        self.answers.close()
        self.socket.close()

    def answer(self):
        line = self.answers.readline()
        if line[:1] in (b"-", b""):
            sys.exit(f"the server answered {line!r}")
        if line[:1] != b"$":
            return line[1:-2]
        length = int(line[1:])
        return None if length < 0 else self.answers.read(length + 2)[:-2]

    def ask(self, *commands):
        request = []
        for command in commands:
            words = [word if isinstance(word, bytes) else str(word).encode() for word in command]
            request.append(b"*%d\r\n" % len(words))
            request += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
        self.socket.sendall(b"".join(request))
        return [self.answer() for _ in commands]


def value(key, version):
    """The value of a key's version, which only these two determine."""
    rng = random.Random(key * 1_000_003 + version)
    length = rng.choice((40, 90, 200, 450, 1000, 2500, 6000, 20_000))
    word = rng.randbytes(16)
    return (word * (length // 16 + 1))[:length]


class Load:
    """Keys, the version that each has, and how many answers were right."""

    def __init__(self, place):
        self.place = place
        self.client = Client(place)
        self.versions = [0] * KEYS
        self.right = 0
        self.rng = random.Random(1)

    def expect(self, wanted, got, what):
        if wanted != got:
            sys.exit(f"wrong answer to {what}: {got!r:.60} instead of {wanted!r:.60}")
        self.right += 1

    def fill(self):
        for first in range(0, KEYS, BATCH):
            keys = range(first, first + BATCH)
            self.client.ask(*(("SET", key, value(key, 0)) for key in keys))

    def batch(self):
        keys = self.rng.sample(range(KEYS), BATCH)
        got = self.client.ask(*(("GET", key) for key in keys))
        for key, text in zip(keys, got):
            self.expect(value(key, self.versions[key]), text, f"GET {key}")
        changed = keys[: BATCH // 2]
        for key in changed:
            self.versions[key] += 1
        done = self.client.ask(*(("SET", key, value(key, self.versions[key])) for key in changed))
        for key, text in zip(changed, done):
            self.expect(b"OK", text, f"SET {key}")

    def burst(self):
        clients = [Client(self.place) for _ in range(BURST)]
        for key, client in enumerate(clients):
            self.expect(value(key, self.versions[key]), client.ask(("GET", key))[0], f"GET {key}")
        for client in clients:
            client.close()

    def save(self):
        self.client.ask(("BGSAVE",))


def main():
    *options, path = sys.argv[1:]
    load = Load(place_of(path))
    load.fill()
    print("work", flush=True)
    last_said = last_burst = last_save = time.monotonic()
    while not select.select([sys.stdin], [], [], PAUSE)[0]:
        load.batch()
        now = time.monotonic()
        if "--bursts" in options and now - last_burst > BETWEEN_BURSTS:
            load.burst()
            last_burst = now
        if "--save" in options and now - last_save > BETWEEN_SAVES:
            load.save()
            last_save = now
        if now - last_said > 1:
            print("answers", load.right, flush=True)
            last_said = now
    print("answers", load.right, flush=True)


main()
