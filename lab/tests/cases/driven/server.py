"""Holds 40 MB for a client that asks for them, until it is told to end."""
import os, socket, sys

assert os.environ["CASE_OF"] == os.environ["CASE_WORK"]
with socket.socket(socket.AF_UNIX) as server:
    server.bind(sys.argv[1] + ".part")
    server.listen()
    # The client sees the socket only when it can connect.
    os.rename(sys.argv[1] + ".part", sys.argv[1])
    client, _ = server.accept()
    client.recv(1)
    held = b"x" * 40_000_000
    client.send(b".")
    sys.stdin.read()
