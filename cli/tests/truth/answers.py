"""240 MiB of objects, which the program frees before it exits."""

import time

kept = []


def login():
    kept.append(b"x" * ((64 << 10) - 64))


for _ in range(3840):
    login()
    time.sleep(0.0005)
kept.clear()
