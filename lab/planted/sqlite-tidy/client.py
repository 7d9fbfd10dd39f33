"""Counts the notes that have a part of a word, and shows one. With SEARCH=words, searches for whole
words and shows the best note."""

import os
import random
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import client  # noqa: E402

RNG = random.Random(15)
WORDS = [f"word{n}" for n in range(2000)]
WORK = os.environ["CASE_WORK"]
# The notes, the table's declaration, and the search.
PARTS = (
    1000,
    "create table notes (id integer primary key, body text)",
    "select count(*), tidy(max(body)) from notes where body like '%{}%'",
)
WHOLE_WORDS = (
    20000,
    "create virtual table notes using fts5(body)",
    "select tidy(body) from notes where notes match '{}' order by rank limit 1",
)

requests = client.patiently(lambda: open(f"{WORK}/requests", "r+b", buffering=0))
answers = client.patiently(lambda: open(f"{WORK}/answers", "rb"))
notes, declaration, search = WHOLE_WORDS if os.environ.get("SEARCH") == "words" else PARTS


def send(text):
    requests.write(text.encode())


def answer():
    line = answers.readline()
    if not line:
        raise EOFError
    return line.decode().rstrip("\n")


def fill():
    send(f"{declaration};\nbegin;\n")
    for _ in range(notes):
        body = "  ".join(RNG.choices(WORDS, k=40))
        send(f"insert into notes (body) values ('{body}');\n")
    send("commit;\nselect count(*) from notes;\n")
    if answer() != str(notes):
        sys.exit("notes are missing")


def request(number):
    word = WORDS[number % len(WORDS)]
    send(search.format(word) + ";\nselect '.';\n")
    found = []
    while (line := answer()) != ".":
        found.append(line)
    if any("  " in line or word not in line for line in found):
        sys.exit(f"wrong answer to request {number}: {found}")


fill()
client.serve(request)
