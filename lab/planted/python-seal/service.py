"""A service: sorts the rows of a body, and seals a record of the request for a journal."""

import ctypes
import hashlib
import http.server
import json
import os

# The record of a request: a line of 528 bytes.
RECORD = 528

library = ctypes.CDLL(os.environ["CASE_ENV"] + "/seal.so")
library.seal.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
library.seal.restype = ctypes.c_void_p
library.discard.argtypes = [ctypes.c_void_p]


def sealed(record):
    packet = library.seal(record, len(record))
    line = ctypes.string_at(packet, len(record))
    library.discard(packet)
    return line


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body["rows"].sort(key=lambda row: row["name"])
        text = json.dumps(body["rows"]).encode()
        digest = hashlib.sha256(text).hexdigest()
        record = f"{self.client_address[0]} {body['id']} {digest} {text[:400].decode()}"
        line = sealed(record.encode().ljust(RECORD)[:RECORD])
        answer = json.dumps({"digest": digest, "record": line.decode()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
port = os.environ["CASE_WORK"] + "/port"
with open(port + ".new", "w") as file:
    file.write(str(server.server_port))
os.rename(port + ".new", port)
server.serve_forever()
