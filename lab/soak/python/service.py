"""A service: sorts and packs the records of a body, and remembers the last results."""

import hashlib
import http.server
import json
import os
import sqlite3
import sys
import threading
import zlib

KEPT = 2000  # results

lock = threading.Lock()
database = sqlite3.connect(":memory:", check_same_thread=False)
database.execute("create table results (id integer primary key, digest text, packed blob)")


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        records = json.loads(body)
        records["rows"].sort(key=lambda row: row["name"])
        text = json.dumps(records["rows"]).encode()
        digest = hashlib.sha256(text).hexdigest()
        packed = zlib.compress(text, 1)
        with lock:
            place = records["id"] % KEPT
            database.execute("replace into results values (?, ?, ?)", (place, digest, packed))
            found = database.execute("select digest, packed from results where id = ?", (place,))
            kept, packed = found.fetchone()
        is_whole = kept == digest and zlib.decompress(packed) == text
        answer = json.dumps({"digest": digest if is_whole else "damaged"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(server.server_port))
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
