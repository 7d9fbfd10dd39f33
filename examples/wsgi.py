"""A service without a network: calls a WSGI application as often as the first argument says. Each
answer is a page of JSON. With a second argument, tracemalloc keeps that many frames."""

import io
import json
import sys
import tracemalloc
from wsgiref.handlers import SimpleHandler
from wsgiref.util import setup_testing_defaults

PEOPLE = 2000
PAGE = 50

people = [
    {"name": f"user{n}", "tags": [f"tag{tag}" for tag in range(10)], "mail": f"user{n}@example.org"}
    for n in range(PEOPLE)
]


def application(environ, start_response):
    first = int(environ["PATH_INFO"].rsplit("/", 1)[1])
    page = [people[(first + n) % PEOPLE] for n in range(PAGE)]
    request = json.dumps({"page": page, "first": first}).encode()
    found = json.loads(request)["page"]
    answer = json.dumps(sorted(found, key=lambda person: person["name"])).encode()
    start_response("200 OK", [("Content-Length", str(len(answer)))])
    return [answer]


def call(number):
    environ = {"PATH_INFO": f"/people/{number * 37 % PEOPLE}"}
    setup_testing_defaults(environ)
    out = io.BytesIO()
    SimpleHandler(io.BytesIO(), out, io.StringIO(), environ).run(application)
    return len(out.getvalue())


if __name__ == "__main__":
    if len(sys.argv) > 2:
        tracemalloc.start(int(sys.argv[2]))
    print(sum(call(number) for number in range(int(sys.argv[1]))), "bytes")
