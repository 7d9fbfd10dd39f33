"""Requests: 4 clients, a connection a request as gunicorn's sync workers want it."""

import hashlib
import http.client
import json
import os
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

REQUESTS = 4000
CLIENTS = 4
PATH = sys.argv[1]


class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(PATH)


def request(number):
    connection = Connection("localhost")
    connection.request("GET", f"/search/{number}")
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer["digest"]


def wait_until_up():
    while True:
        try:
            return request(0)
        except OSError:
            time.sleep(0.1)


def main():
    wait_until_up()
    print("work", flush=True)
    with ThreadPoolExecutor(CLIENTS) as pool:
        digests = list(pool.map(request, range(REQUESTS)))
    print("check", hashlib.sha256(repr(digests).encode()).hexdigest()[:16])
    print("rest", flush=True)
    sys.stdin.read()
    os.kill(int(os.environ["CASE_SUBJECT"]), signal.SIGTERM)


main()
