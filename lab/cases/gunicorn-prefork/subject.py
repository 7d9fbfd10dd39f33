"""A shop's API: a catalogue and caches that gunicorn loads before it forks."""

import hashlib
import json
import os

import numpy as np

PRODUCTS = 30_000
VECTOR = 384  # floats of an embedding

rng = np.random.default_rng(21474)


def load():
    """Read the catalogue: parse, index, keep; what parsing needed is freed and leaves holes."""
    products = []
    for start in range(0, PRODUCTS, 5000):
        rows = [
            {
                "id": number,
                "name": f"product {number * 7919 % PRODUCTS}",
                "price": number % 991 / 10,
                "text": ("about " + "x" * (number * 31 % 900)),
            }
            for number in range(start, start + 5000)
        ]
        page = json.dumps(rows)
        products.extend(json.loads(page))
    return products


CATALOGUE = load()
# One array an embedding, its floats a block of their own; workers replace what is renewed.
VECTORS = {n: rng.standard_normal(VECTOR).astype(np.float32) for n in range(0, PRODUCTS, 2)}
# Rendered pages, as a local cache of bytes.
PAGES = {n: bytearray(b"<li>" * (200 + n % 700)) for n in range(0, PRODUCTS, 3)}


def search(seed):
    """Compare with the embeddings of a section of the catalogue, answer with the best."""
    generator = np.random.default_rng(seed)
    query = generator.standard_normal(VECTOR).astype(np.float32)
    first = seed * 997 % PRODUCTS
    ids = [n % PRODUCTS for n in range(first, first + 600) if n % PRODUCTS in VECTORS]
    scores = np.stack([VECTORS[n] for n in ids]) @ query
    best = [ids[i] for i in np.argsort(-scores)[:40]]
    answer = [{**CATALOGUE[n], "score": round(float(query @ VECTORS[n]), 2)} for n in best]
    return answer


def renew(seed):
    """Forget what is stale: the worker frees blocks that its parent allocated, and makes new."""
    for step in range(60):
        number = (seed * 61 + step * 2) % PRODUCTS
        if number in VECTORS:
            VECTORS[number] = (VECTORS[number] * np.float32(1.0)).copy()
        if number in PAGES:
            PAGES[number] = bytearray(b"<li>" * (200 + number % 700))


def application(environ, start_response):
    seed = int(environ["PATH_INFO"].rsplit("/", 1)[1])
    answer = search(seed)
    renew(seed)
    # The rendering: text of a few hundred kilobytes that lives as long as the request.
    page = "".join(json.dumps(item, indent=2) * 6 for item in answer)
    body = json.dumps({"digest": hashlib.sha256(page.encode()).hexdigest()}).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("X-Pid", str(os.getpid()))])
    return [body]
