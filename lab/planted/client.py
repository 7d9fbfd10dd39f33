"""What the clients have in common: as many requests as are wanted, one after another."""

import os
import socket
import sys
import time

PAUSE = 0.02  # seconds, until a server is up


def unix(path):
    made = socket.socket(socket.AF_UNIX)
    made.connect(path)
    return made


def patiently(connect):
    """What `connect` returns once the server is up."""
    for _ in range(1500):
        try:
            return connect()
        except OSError:
            time.sleep(PAUSE)
    sys.exit("the server does not answer")


def serve(request):
    """Sends REQUESTS requests, at most PER_SECOND of them in a second if that is set, until the
    server ends. Prints how many got an answer, and how long it took."""
    wanted, answers = int(os.environ["REQUESTS"]), 0
    per_second = int(os.environ.get("PER_SECOND", "0"))
    start = time.monotonic()
    try:
        while answers < wanted:
            request(answers)
            answers += 1
            if per_second:
                time.sleep(max(0, start + answers / per_second - time.monotonic()))
    except (OSError, EOFError):
        pass
    print("answers", answers, flush=True)
    print("seconds", time.monotonic() - start, flush=True)
    sys.stdin.read()
