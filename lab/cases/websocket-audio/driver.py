"""Clients that talk: 48 at a time, 480 in all; 12 are silent and connected at rest."""

import asyncio
import hashlib
import json
import os
import random
import signal
import sys

from websockets.asyncio.client import unix_connect

CLIENTS = 480
AT_ONCE = 48
STAY = 12
PATH = sys.argv[1]
NOISE = random.Random(6938).randbytes(1 << 20)


async def connect():
    while True:
        try:
            return await unix_connect(
                PATH, "ws://localhost/", compression=None, ping_interval=None, max_queue=None
            )
        except OSError:
            await asyncio.sleep(0.05)


async def talk(number):
    """One client: chunks of changing length; it asks now and then, so that it never runs ahead."""
    rng = random.Random(number)
    socket = await connect()
    for turn in range(10 + rng.randrange(20)):
        for _ in range(20):
            start = rng.randrange(len(NOISE) - 16_000)
            await socket.send(NOISE[start : start + 1600 + rng.randrange(14_000)])
        await socket.send("?")
        answer = json.loads(await socket.recv())
    return socket, answer["digest"]


async def main():
    digests = [None] * CLIENTS
    stay = []
    room = asyncio.Semaphore(AT_ONCE)

    async def client(number):
        async with room:
            socket, digests[number] = await talk(number)
            if number % (CLIENTS // STAY) == 5 and len(stay) < STAY:
                stay.append(socket)
            else:
                await socket.close()

    probe = await connect()  # the worker is up
    await probe.close()
    print("work", flush=True)
    async with asyncio.TaskGroup() as tasks:
        for number in range(CLIENTS):
            tasks.create_task(client(number))
    print("check", hashlib.sha256(repr(digests).encode()).hexdigest()[:16])
    print("rest", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for socket in stay:
        await socket.close()
    os.kill(int(os.environ["CASE_SUBJECT"]), signal.SIGTERM)


asyncio.run(main())
