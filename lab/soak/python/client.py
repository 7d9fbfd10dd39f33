"""Four clients of service.py, a connection for each request, until standard input is closed."""

import hashlib
import http.client
import json
import os
import random
import select
import sys
import time
from concurrent.futures import ThreadPoolExecutor

CLIENTS = 4
PAUSE = 0.1  # seconds between two rounds
LONGEST = 60  # seconds, for an answer


def request(port, number):
    rng = random.Random(number)
    count = rng.choice((8, 30, 120, 500, 2000))
    rows = [{"name": rng.randbytes(20).hex(), "text": "x" * rng.randrange(99)} for _ in range(count)]
    body = json.dumps({"id": number, "rows": rows})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONGEST)
    connection.request("POST", "/", body)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    rows.sort(key=lambda row: row["name"])
    wanted = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
    if answer["digest"] != wanted:
        sys.exit(f"wrong answer to request {number}: {answer}")


def main():
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.02)
    port = int(open(sys.argv[1]).read())
    number, last_said = 0, time.monotonic()
    print("work", flush=True)
    with ThreadPoolExecutor(CLIENTS) as pool:
        while not select.select([sys.stdin], [], [], PAUSE)[0]:
            list(pool.map(lambda n: request(port, n), range(number, number + CLIENTS)))
            number += CLIENTS
            if time.monotonic() - last_said > 1:
                print("answers", number, flush=True)
                last_said = time.monotonic()
    print("answers", number, flush=True)


main()
