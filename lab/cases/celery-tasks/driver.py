"""Sends the tasks and waits for their results."""

import hashlib
import os
import signal
import sys

import subject

TASKS = 36


def main():
    subject.parse.delay(0).get(timeout=60)
    print("work", flush=True)
    sent = [subject.parse.delay(number) for number in range(1, TASKS + 1)]
    digests = [result.get(timeout=120, interval=0.05) for result in sent]
    print("check", hashlib.sha256(repr(digests).encode()).hexdigest()[:16])
    print("rest", flush=True)
    sys.stdin.read()
    os.kill(int(os.environ["CASE_SUBJECT"]), signal.SIGTERM)


main()
