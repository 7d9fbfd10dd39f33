"""Tasks that parse documents; the broker and the results are directories."""

import hashlib
import html.parser
import os
import random

import numpy as np
from celery import Celery

ROOT = os.environ["CASE_WORK"]
for name in ("queue", "processed", "results", "control"):
    os.makedirs(f"{ROOT}/{name}", exist_ok=True)

app = Celery("subject", broker="filesystem://", backend=f"file://{ROOT}/results")
app.conf.update(
    broker_transport_options={
        "data_folder_in": f"{ROOT}/queue",
        "data_folder_out": f"{ROOT}/queue",
        "control_folder": f"{ROOT}/control",
    },
    worker_prefetch_multiplier=1,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
)

WORDS = [f"word{n}" for n in range(5000)]


def document(number):
    """The text of a document: 2 to 8 MB of markup."""
    rng = random.Random(number)
    lines = []
    for _ in range(600 + number * 7919 % 2400):
        words = " ".join(rng.choices(WORDS, k=300))
        lines.append(f"<section><h2>{rng.choice(WORDS)}</h2><p>{words}</p></section>")
    return "<html>" + "".join(lines) + "</html>"


class Tree(html.parser.HTMLParser):
    """The document as a tree of lists: many small objects."""

    def __init__(self):
        super().__init__()
        self.root = ["root", []]
        self.stack = [self.root]

    def handle_starttag(self, tag, attrs):
        node = [tag, []]
        self.stack[-1][1].append(node)
        self.stack.append(node)

    def handle_endtag(self, tag):
        self.stack.pop()

    def handle_data(self, data):
        self.stack[-1][1].append(data.split(" "))


def embed(section, table):
    """A vector for a section: the mean of its words' rows."""
    rows = [hash(word) % len(table) for word in section]
    return table[rows].mean(axis=0)


kept = {}  # what the process remembers of each document: a digest and a few vectors


@app.task
def parse(number):
    text = document(number)
    tree = Tree()
    tree.feed(text)
    table = np.random.default_rng(number).standard_normal((5000, 256), dtype=np.float32)
    sections = [child[1][1][1][0] for child in tree.root[1][0][1]]
    vectors = np.stack([embed(section, table) for section in sections])
    near = vectors[:1500] @ vectors.T  # similarity of sections: up to 18 MB, its order twice that
    best = np.argsort(-near, axis=1)[:, :5]
    digest = hashlib.sha256(text.encode() + best.astype(np.int32).tobytes()).hexdigest()
    kept[number] = (digest, vectors[:16].copy())
    return digest
