"""Opens 200 connections, has each sort a table of 30,000 rows in memory, and leaves them idle.

Speaks PostgreSQL's protocol itself, so that it needs no package.
"""
import os
import signal
import socket
import struct
import sys
import threading
import time

PATH = os.path.join(sys.argv[1], ".s.PGSQL.5432")
CONNECTIONS = 200
AT_ONCE = 4
ROWS = 30_000


class Connection:
    """A connection that answers one query after the other."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(PATH)
        body = struct.pack("!i", 196608) + b"user\0postgres\0database\0postgres\0\0"
        self.socket.sendall(struct.pack("!i", len(body) + 4) + body)
        self.file = self.socket.makefile("rb")
        self.answer()

    def answer(self):
        """The last value of the rows up to the server's readiness."""
        value = None
        while True:
            kind, length = struct.unpack("!ci", self.file.read(5))
            body = self.file.read(length - 4)
            if kind == b"E":
                raise RuntimeError(body)
            if kind == b"D":
                value = body[6:].decode()
            if kind == b"Z":
                return value

    def query(self, text):
        body = text.encode() + b"\0"
        self.socket.sendall(b"Q" + struct.pack("!i", len(body) + 4) + body)
        return self.answer()


def first():
    """A connection, as soon as the server answers."""
    for _ in range(6000):
        try:
            return Connection()
        except (OSError, RuntimeError, struct.error):
            time.sleep(0.02)
    sys.exit("postgres does not answer")


server = first()
server.query(
    "CREATE TABLE rows AS SELECT i AS id, md5(i::text) || repeat(md5((i % 97)::text), 1 + i % 9) AS body"
    f" FROM generate_series(1, {ROWS}) AS i"
)
server.query("ANALYZE rows")
SORT = (
    "SELECT count(*) + sum(place) FROM"
    " (SELECT row_number() OVER (ORDER BY body DESC, id) AS place FROM rows) AS sorted"
)
GROUP = "SELECT sum(n) FROM (SELECT body, count(*) AS n FROM rows GROUP BY body) AS grouped"

print("work", flush=True)
connections, results = [], []
lock = threading.Lock()


def serve():
    """Opens connections and sorts in each, until there are enough."""
    while True:
        with lock:
            if len(connections) == CONNECTIONS:
                return
            connection = Connection()
            connections.append(connection)
        result = connection.query(SORT), connection.query(GROUP)
        with lock:
            results.append(result)


threads = [threading.Thread(target=serve) for _ in range(AT_ONCE)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if len(results) != CONNECTIONS:
    sys.exit("a connection failed")
print("check", "-".join(sorted({"/".join(result) for result in results})))
print("rest", flush=True)
sys.stdin.read()
# An immediate shutdown of all backends.
os.kill(int(os.environ["CASE_SUBJECT"]), signal.SIGQUIT)
