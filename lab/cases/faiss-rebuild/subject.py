"""A matcher: one thread rebuilds the index, the main thread answers from the last one."""

import gc
import hashlib
import pickle
import sys
import threading

import faiss
import numpy as np

CYCLES = 10
DIMENSION = 64
LISTS = 512


class Matcher:
    """An index and, for each of its vectors, what the service knows about it."""

    def __init__(self, index, records):
        self.index = index
        self.records = records

    def match(self, queries):
        distances, ids = self.index.search(queries, 4)
        return [
            {"id": int(i), "distance": round(float(d), 3), "from": self.records[int(i)]["source"]}
            for row_d, row_i in zip(distances, ids)
            for d, i in zip(row_d, row_i)
            if i >= 0
        ]


def records_of(cycle, rng, count):
    """The rows that a database would return, one dictionary with text of its own each."""
    digits = rng.integers(0, 2**62, size=count)
    return [
        {
            "key": f"{number:016x}" * (1 + number % 6),
            "source": f"bank-{number % 40}",
            "tags": [f"tag-{cycle}-{number % 1000}", f"label-{number % 7}"],
            "note": "n" * (520 + int(number % 700)) if number % 8 == 0 else None,
        }
        for number in digits.tolist()
    ]


def build(cycle, rng, train):
    """A new index, filled page by page as the rows arrive, then stored and loaded as HMA does."""
    count = 70_000 + (cycle * 37 % 50) * 1000
    quantizer = faiss.IndexFlatL2(DIMENSION)
    index = faiss.IndexIVFFlat(quantizer, DIMENSION, LISTS)
    index.nprobe = 4
    index.train(train)
    records = []
    while len(records) < count:
        page = min(2000, count - len(records))
        vectors = rng.standard_normal((page, DIMENSION), dtype=np.float32)
        records.extend(records_of(cycle, rng, page))
        index.add(vectors)
    stored = pickle.dumps((faiss.serialize_index(index), records[::50]))
    array, _ = pickle.loads(stored)
    loaded = faiss.deserialize_index(array)
    loaded.nprobe = 4
    return Matcher(loaded, records), stored


class Service:
    def __init__(self):
        self.matcher = None
        self.digest = hashlib.sha256()

    def rebuild(self, cycle, train):
        rng = np.random.default_rng(1971 + cycle)
        matcher, stored = build(cycle, rng, train)
        self.matcher = matcher  # the old one is dropped by its last request
        self.digest.update(len(stored).to_bytes(8, "little"))
        del stored
        gc.collect()


def main():
    faiss.omp_set_num_threads(2)
    service = Service()
    rng = np.random.default_rng(7)
    train = rng.standard_normal((20_000, DIMENSION), dtype=np.float32)
    queries = rng.standard_normal((256, DIMENSION), dtype=np.float32)
    print("work", flush=True)
    for cycle in range(CYCLES):
        worker = threading.Thread(target=service.rebuild, args=(cycle, train))
        worker.start()
        while worker.is_alive():  # requests meanwhile
            if service.matcher is not None:
                service.matcher.match(queries[:32])
            worker.join(0.02)
        answers = service.matcher.match(queries)
        service.digest.update(repr(answers).encode())
    print("check", service.digest.hexdigest()[:16])
    print("rest", flush=True)
    sys.stdin.read()


main()
