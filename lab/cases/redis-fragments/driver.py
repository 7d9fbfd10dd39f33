"""Fills a Redis with 160 MB, replaces parts of it, and deletes nine tenths of the keys, all
chosen at random.

driver.py churn: values of 40 to 6,000 bytes; six times a third of them is replaced by others.
driver.py generations: values of 40 to 120 bytes; three times four fifths of the keys give way to
values of the next size.
"""

import hashlib
import os
import random
import socket
import sys
import time

WORK = os.environ["CASE_WORK"]
BYTES = 160_000_000
BATCH = 1000


class Redis:
    """A connection that sends commands in batches."""

    def __init__(self, path):
        for _ in range(500):
            try:
                self.socket = socket.socket(socket.AF_UNIX)
                self.socket.connect(path)
                break
            except OSError:
                time.sleep(0.02)
        else:
            sys.exit("redis-server does not answer")
        self.answers = self.socket.makefile("rb")

    def answer(self):
        line = self.answers.readline()
        if line[:1] == b"-":
            sys.exit(line.decode())
        if line[:1] == b"$":
            size = int(line[1:])
            return self.answers.read(size + 2)[:-2] if size >= 0 else None
        return line[1:-2]

    def send(self, commands):
        """The answers to `commands`, each a tuple of words."""
        answers = []
        for start in range(0, len(commands), BATCH):
            batch = commands[start : start + BATCH]
            parts = []
            for words in batch:
                parts.append(b"*%d\r\n" % len(words))
                for word in words:
                    parts.append(b"$%d\r\n%b\r\n" % (len(word), word))
            self.socket.sendall(b"".join(parts))
            answers += [self.answer() for _ in batch]
        return answers


class Keys:
    """The keys that are set, and what they are set to."""

    def __init__(self, redis):
        self.redis = redis
        self.rng = random.Random(13)
        self.text = self.rng.randbytes(1 << 16)
        self.keys = []
        self.number = 0

    def fill(self, room, size):
        """Sets new keys to values of `size()` bytes until `room` bytes are used."""
        commands = []
        while room > 0:
            length, at = size(), self.rng.randrange(len(self.text) - 6000)
            key = b"session:%d" % self.number
            self.number += 1
            commands.append((b"SET", key, self.text[at : at + length]))
            self.keys.append(key)
            room -= length + 100
        self.redis.send(commands)

    def keep(self, part):
        """Deletes all but one in `part` of the keys, in random order."""
        self.rng.shuffle(self.keys)
        kept = round(len(self.keys) / part)
        self.redis.send([(b"DEL", key) for key in self.keys[kept:]])
        del self.keys[kept:]

    def digest(self):
        digest = hashlib.sha256()
        for value in self.redis.send([(b"GET", key) for key in self.keys]):
            digest.update(value)
        return digest.hexdigest()[:16]


def churn(keys):
    def size():
        return int(40 * 150 ** keys.rng.random())

    keys.fill(BYTES, size)
    for _ in range(6):
        keys.keep(1.5)
        keys.fill(BYTES // 3, size)
    keys.keep(10)


def generations(keys):
    for low, high in [(40, 120), (150, 400), (500, 1500), (2000, 6000)]:
        keys.fill(BYTES * 4 // 5 if keys.keys else BYTES, lambda: keys.rng.randrange(low, high))
        keys.keep(5 if high < 6000 else 10)


def main():
    redis = Redis(f"{WORK}/socket")
    keys = Keys(redis)
    print("work", flush=True)
    {"churn": churn, "generations": generations}[sys.argv[1]](keys)
    check = keys.digest()
    memory = redis.send([(b"INFO", b"memory")])[0].decode()
    used = [line for line in memory.split("\r\n") if line.startswith("used_memory:")]
    print("live", used[0].split(":")[1])
    print("check", check)
    print("rest", flush=True)
    sys.stdin.read()
    redis.socket.sendall(b"*2\r\n$8\r\nSHUTDOWN\r\n$6\r\nNOSAVE\r\n")


main()
