"""Clients: 16 conversations at a time that grow with each turn and then end."""

import base64
import hashlib
import http.client
import json
import os
import random
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

CONVERSATIONS = 64
AT_ONCE = 16
TURNS = 8
PATH = sys.argv[1]
WORDS = [f"word{n * 7919 % 1000}" for n in range(1000)]


class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(PATH)


def call(connection, method, path, body=None):
    connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
    answer = connection.getresponse()
    data = answer.read()
    assert answer.status == 200, data[:300]
    return data


def converse(number):
    rng = random.Random(number)
    connection = Connection("localhost")
    messages = []
    digest = hashlib.sha256()
    for turn in range(TURNS):
        for _ in range(20):
            text = " ".join(rng.choices(WORDS, k=40 + rng.randrange(400)))
            messages.append({"role": "user", "parts": [{"type": "text", "text": text}]})
        image = base64.b64encode(rng.randbytes(50_000 + rng.randrange(450_000))).decode()
        messages[-1]["parts"].append({"type": "image", "image": image})
        body = json.dumps({"conversation": f"c{number}", "messages": messages})
        digest.update(call(connection, "POST", "/chat", body))
    connection.close()
    return digest.hexdigest()


def wait_until_up():
    while True:
        try:
            return call(Connection("localhost"), "GET", "/ready")
        except OSError:
            time.sleep(0.1)


def main():
    wait_until_up()
    print("work", flush=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        digests = list(pool.map(converse, range(CONVERSATIONS)))
    print("check", hashlib.sha256(repr(digests).encode()).hexdigest()[:16])
    print("rest", flush=True)
    sys.stdin.read()
    os.kill(int(os.environ["CASE_SUBJECT"]), signal.SIGINT)


main()
