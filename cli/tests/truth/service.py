"""A service that records what it holds: see main.rs. Its argument is the file for the truth."""

import os
import sys
import threading
import time

BLOCK = 16384 - 64  # With the object's header and the final zero, it fits its block.
page = os.sysconf("SC_PAGESIZE")
live = 0
truth = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
statm = os.open("/proc/self/statm", os.O_RDONLY)
over = False


def say():
    rss = int(os.pread(statm, 128, 0).split()[1]) * page
    os.write(truth, b"%d %d %d\n" % (time.time() * 1000, live, rss))


def tell():
    while not over:
        say()
        time.sleep(0.005)


def requests(count):
    global live
    kept = []
    for _ in range(count):
        kept.append(b"x" * BLOCK)
        live += BLOCK + 34
    return kept


def forget(kept):
    global live
    while kept:
        kept.pop()
        live -= BLOCK + 34


threading.Thread(target=tell, daemon=True).start()
sessions = requests(2500)
time.sleep(1.0)
cache = requests(5000)
time.sleep(1.2)
forget(cache)
time.sleep(1.0)
over = True
say()
# Ends together with its sessions, like other services.
os._exit(0) if len(sys.argv) > 2 else None
