"""Works the parts of CPython that lean on malloc; prints digests."""

import collections
import hashlib
import json
import multiprocessing
import os
import queue
import random
import re
import sqlite3
import subprocess
import sys
import threading
import zlib

SCALE = int(sys.argv[1])


def show(name, value):
    digest = hashlib.sha256(repr(value).encode()).hexdigest()[:16]
    print(name, digest, flush=True)


def document(seed, depth):
    rng = random.Random(seed)
    if depth == 0:
        return rng.choice([None, True, rng.random(), rng.getrandbits(40), "ü" * rng.randrange(60)])
    if rng.random() < 0.5:
        return [document(rng.random(), depth - 1) for _ in range(rng.randrange(7))]
    return {f"key{i}": document(rng.random(), depth - 1) for i in range(rng.randrange(7))}


def json_work():
    total = 0
    for seed in range(300 * SCALE):
        value = document(seed, 5)
        text = json.dumps(value, indent=seed % 3 or None)
        assert json.loads(text) == value
        total = zlib.crc32(text.encode(), total)
    return total


def sqlite_work():
    with sqlite3.connect("work.db") as db:
        db.execute("create table t(id integer primary key, name text, data blob)")
        rows = ((i, f"name{i * 7919 % 5000}", bytes([i % 256]) * (i % 900)) for i in range(20000 * SCALE))
        db.executemany("insert into t values(?, ?, ?)", rows)
        db.execute("create index by_name on t(name)")
    query = "select name, count(*), sum(length(data)) from t group by name order by name"
    return list(db.execute(query)), list(db.execute("pragma integrity_check"))


def thread_work():
    jobs, done = queue.Queue(), queue.Queue()

    def worker():
        while (seed := jobs.get()) is not None:
            rng = random.Random(seed)
            words = [("w%d" % rng.randrange(2000)) * 3 for _ in range(3000)]
            done.put((seed, sorted(collections.Counter(words).items())[:50]))

    threads = [threading.Thread(target=worker) for _ in range(8)]
    for thread in threads:
        thread.start()
    for seed in range(60 * SCALE):
        jobs.put(seed)
    for _ in threads:
        jobs.put(None)
    for thread in threads:
        thread.join()
    return sorted(done.queue)


def short_threads():
    boxes = [[] for _ in range(400)]
    for start in range(0, len(boxes), 40):
        batch = [
            threading.Thread(target=lambda b=b: b.extend(str(i) * 20 for i in range(200)))
            for b in boxes[start : start + 40]
        ]
        for thread in batch:
            thread.start()
        for thread in batch:
            thread.join()
    return boxes


def squares(numbers):
    return [str(n * n) * (n % 50) for n in numbers]


def fork_work():
    stop = threading.Event()

    def churn():
        while not stop.is_set():
            [bytearray(n) for n in range(1, 4000, 37)]

    noise = [threading.Thread(target=churn) for _ in range(2)]
    for thread in noise:
        thread.start()
    context = multiprocessing.get_context("fork")
    try:
        with context.Pool(3) as pool:
            result = pool.map(squares, [range(n, n + 400) for n in range(60)])
        for _ in range(20 * SCALE):
            child = os.fork()
            if child == 0:
                os._exit(len({str(n): bytearray(n) for n in range(1500)}) % 256)
            assert os.waitpid(child, 0)[1] == (1500 % 256) << 8
    finally:
        stop.set()
        for thread in noise:
            thread.join()
    return result


def subprocess_work():
    code = "import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(d[::-1])"
    data = bytes(range(256)) * 4000
    outputs = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
        outputs.append(hashlib.sha256(done.stdout).hexdigest())
    return outputs


def large_blocks():
    grown = bytearray()
    for n in range(400):
        grown += bytes([n % 251]) * 50_000
    numbers = list(range(1_000_000))
    numbers.extend(numbers[::3])
    return zlib.crc32(grown), sum(numbers), zlib.crc32(zlib.compress(bytes(grown), 1))


def regex_work():
    text = " ".join(f"user{n}@host{n % 97}.example" for n in range(20000))
    return re.findall(r"(\w+)@(host\d*7)\.(\w+)", text)[:2000]


for work in (
    json_work,
    sqlite_work,
    thread_work,
    short_threads,
    fork_work,
    subprocess_work,
    large_blocks,
    regex_work,
):
    show(work.__name__, work())
