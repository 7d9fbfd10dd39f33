"""Chunks of columns on a pool of threads: changing temporaries, small results that stay."""

import hashlib
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

CHUNKS = 160
THREADS = 12


def chunk(number):
    """One file's worth of events: select, combine, fill histograms."""
    rng = np.random.default_rng(249 + number)
    events = int(rng.integers(60_000, 420_000))
    counts = rng.integers(0, 6, events)
    total = int(counts.sum())
    momentum = rng.exponential(40.0, total)
    angle = rng.uniform(-3.0, 3.0, total)
    mass = rng.exponential(5.0, total).astype(np.float32)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    kept = {}
    for cut in (10.0, 25.0, 60.0):
        mask = (momentum > cut) & (np.abs(angle) < 2.4)
        good = momentum[mask]
        energy = np.sqrt(good**2 * np.cosh(angle[mask]) ** 2 + mass[mask] ** 2)
        per_event = np.add.reduceat(np.append(mask, False).astype(np.int64), starts)
        leading = np.sort(energy)[::-1][: events // 4]
        kept[cut] = {
            "energy": np.histogram(energy, bins=200, range=(0, 2000))[0],
            "leading": np.histogram(leading, bins=500, range=(0, 4000))[0],
            "count": np.bincount(per_event, minlength=8)[:8],
        }
        # The few events that are looked at later stay: small arrays between large ones.
        kept[cut]["sample"] = energy[: 200 + number % 100].copy()
    return number, kept


def main():
    results = {}
    print("work", flush=True)
    pool = ThreadPoolExecutor(THREADS)
    for number, kept in pool.map(chunk, range(CHUNKS)):
        results[number] = kept
    digest = hashlib.sha256()
    live = 0
    for number in range(CHUNKS):
        for cut in sorted(results[number]):
            for name, array in sorted(results[number][cut].items()):
                live += array.nbytes
                if array.dtype != np.float64:
                    digest.update(array.tobytes())
                else:
                    digest.update(array.round(3).tobytes())
    print("check", digest.hexdigest()[:16])
    print("live", live)
    print("rest", flush=True)
    sys.stdin.read()
    pool.shutdown()


main()
