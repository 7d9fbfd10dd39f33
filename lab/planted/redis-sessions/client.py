"""A site's request: its user's session, the user's last events, and one event more."""

import os
import socket
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import client  # noqa: E402


class Redis:
    def __init__(self):
        path = os.environ["CASE_WORK"] + "/socket"
        self.socket = client.patiently(lambda: client.unix(path))
        self.answers = self.socket.makefile("rb")

    def answer(self):
        line = self.answers.readline()
        if not line:
            raise EOFError
        if line[:1] == b"-":
            sys.exit(line.decode())
        if line[:1] == b"$":
            return self.answers.read(int(line[1:]) + 2)[:-2]
        if line[:1] == b"*":
            return [self.answer() for _ in range(int(line[1:]))]
        return line[1:-2]

    def send(self, *words):
        parts = [b"*%d\r\n" % len(words)]
        parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
        self.socket.sendall(b"".join(parts))
        return self.answer()

    def request(self, number):
        user = b"user:%d" % (number % 50)
        events = b"events:" + user
        self.send(b"SESSION.TOUCH", user, b"Mozilla/5.0 (X11; Linux x86_64; rv:140.0)")
        self.send(b"LPUSH", events, b"%d viewed the page number %d" % (time.time(), number))
        self.send(b"LTRIM", events, b"0", b"99")
        last = self.send(b"LRANGE", events, b"0", b"19")
        if not last[0].endswith(b" %d" % number):
            sys.exit(f"wrong answer to request {number}: {last[0]}")


client.serve(Redis().request)
