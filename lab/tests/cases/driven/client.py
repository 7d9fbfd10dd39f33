"""Asks the server for its memory, and holds more itself, which does not count."""
import os, socket, sys, time

assert "LD_PRELOAD" not in os.environ and int(os.environ["CASE_SUBJECT"]) > 1
own = b"y" * 200_000_000
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
with socket.socket(socket.AF_UNIX) as client:
    client.connect(sys.argv[1])
    print("work", flush=True)
    client.send(b".")
    client.recv(1)
    print("check", len(own), flush=True)
    print("rest", flush=True)
    sys.stdin.read()
