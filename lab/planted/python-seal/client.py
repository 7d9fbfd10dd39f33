"""Posts rows to the service, a connection for each request."""

import hashlib
import http.client
import json
import os
import random
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import client  # noqa: E402


def port():
    with open(os.environ["CASE_WORK"] + "/port") as file:
        return int(file.read())


PORT = client.patiently(port)
RNG = random.Random(15)
ROWS = [{"name": RNG.randbytes(20).hex(), "text": "x" * RNG.randrange(99)} for _ in range(30)]
WANTED = hashlib.sha256(json.dumps(sorted(ROWS, key=lambda row: row["name"])).encode()).hexdigest()


def request(number):
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    try:
        connection.request("POST", "/", json.dumps({"id": number, "rows": ROWS}))
        answer = json.loads(connection.getresponse().read())
    except http.client.HTTPException as error:
        raise EOFError from error
    finally:
        connection.close()
    if answer["digest"] != WANTED or f" {number} {WANTED}" not in answer["record"]:
        sys.exit(f"wrong answer to request {number}: {answer}")


client.serve(request)
