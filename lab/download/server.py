"""One download: an HTTPS server with a fixed body on a free port of the loopback address, and one
client process under the allocator, whose answers it checks. The client does not check them itself,
because its memory is under test.

Arguments: the key, the certificate, the body's size in MiB, the library to preload, the client's
file, and the client's own arguments after the certificate: the chunk in bytes, the limit in seconds,
how many downloads, and the buffers. Prints the client's `key=value` lines, and `received`, the bytes
of all downloads.
"""

import http.server
import os
import random
import ssl
import subprocess
import sys
import threading
import zlib

# A client whose time is up disconnects. One that has the whole body may skip TLS's shutdown.
GONE = (ConnectionError, TimeoutError, ssl.SSLError)


class Handler(http.server.BaseHTTPRequestHandler):
    """Sends the body in answer to every GET.

    It sends no Content-Length: http.client would limit a read to the rest of the body, and a chunk
    of 1000 MiB of a body of 64 would become one of 64. The end of the connection ends the body.
    """

    timeout = 60

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.end_headers()
        try:
            self.wfile.write(self.server.body)
            # OpenSSL 3 treats an end without TLS's shutdown as an attack.
            self.connection.unwrap()
        except GONE:
            pass

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    def __init__(self, key, certificate, body):
        super().__init__(("127.0.0.1", 0), Handler)
        self.body = body
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        # The handshake belongs to the connection's thread, not to the one that accepts.
        self.socket = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], GONE):
            super().handle_error(request, client_address)


def complaint(report, body, chunk, times):
    """Why a client's report is not one of `times` whole downloads of `body`; None if it is.

    If the time was up, the last download may be short. The buffered reader rounds the chunk down to
    whole blocks of its own.
    """
    lines = [line.partition("=") for line in report.splitlines()]
    downloads = [[int(part) for part in value.split(":")] for key, _, value in lines
                 if key == "download"]
    told = {key: value for key, _, value in lines}
    whole = 0
    while whole < len(downloads) and downloads[whole][0] == len(body):
        whole += 1
    wanted = times if told["end"] == "body" else len(downloads) - 1
    if whole < wanted or len(downloads) > times or any(got > len(body) for got, _ in downloads):
        return "of %d bytes a download came %s" % (len(body), downloads)
    for got, crc in downloads:
        sent = zlib.crc32(memoryview(body)[:got])
        if crc != sent:
            return "the %d bytes that came are not those that were sent (CRC-32 %08x, not %08x)" % (
                got, crc, sent)
    if int(told["reads"]) and int(told["largest_buffer"]) <= chunk // 2:
        return "the largest buffer had %s bytes, not the chunk's %d" % (
            told["largest_buffer"], chunk)
    print("received=%d" % sum(got for got, _ in downloads))
    return None


def main():
    key, certificate, megabytes, library, client, chunk, limit, times, buffers = sys.argv[1:]
    bits = random.Random(2016)
    body = b"".join(bits.randbytes(1 << 20) for _ in range(int(megabytes)))
    server = Server(key, certificate, body)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = "https://127.0.0.1:%d/" % server.server_address[1]
    done = subprocess.run(
        [sys.executable, "-I", client, url, certificate, chunk, limit, times, buffers],
        env=os.environ | {"LD_PRELOAD": library}, stdout=subprocess.PIPE, text=True,
    )
    if done.returncode:
        sys.exit("the client ended with %d" % done.returncode)
    print(done.stdout, end="")
    sys.exit(complaint(done.stdout, body, int(chunk), int(times)))


if __name__ == "__main__":
    main()
