"""The HTTPS server of the download: one fixed body, on a free port of the loopback address.

Arguments: the key, the certificate, the body's size in MiB. Prints `port=N`. Then
each line of standard input is a number of bytes, and the answer is the CRC-32 of that much of the
body. The lab compares it, not the client, whose memory is under test. The server ends with its
standard input, so it cannot outlive the lab.
"""

import http.server
import random
import signal
import ssl
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


def main():
    key, certificate, megabytes = sys.argv[1:]
    # An interrupt from the terminal is for the lab; here it would only print a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    bits = random.Random(2016)
    body = b"".join(bits.randbytes(1 << 20) for _ in range(int(megabytes)))
    server = Server(key, certificate, body)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("port=%d" % server.server_address[1], flush=True)
    for line in sys.stdin:
        print("crc32=%d" % zlib.crc32(memoryview(body)[: int(line)]), flush=True)


main()
