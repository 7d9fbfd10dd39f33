"""The HTTPS server of the download, with a fixed body on a free port of the loopback address. It
checks what the client received. The client does not check it, because its memory is under test.

Arguments: the run's directory and the one of the key and the certificate. Two variables change the
download: `DOWNLOAD_CHUNK`, the chunk in MiB, and `DOWNLOAD_BUFFERS`, `zeroed` or `unzeroed`.
"""

import http.server
import os
import random
import ssl
import sys
import threading
import time
import zlib

MIB = 1 << 20
BODY = 64 * MIB
TIMES = 2
# A client that has the whole body may skip TLS's shutdown.
GONE = (ConnectionError, TimeoutError, ssl.SSLError)


class Handler(http.server.BaseHTTPRequestHandler):
    """Sends the body in answer to every GET.

    It sends no Content-Length: http.client would limit a read to the rest of the body, and a chunk
    of 100 MiB of a body of 64 would become one of 64. The end of the connection ends the body.
    """

    # Longer than the case's limit: a slow client is the finding.
    timeout = 600

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
    def __init__(self, folder, body):
        super().__init__(("127.0.0.1", 0), Handler)
        self.body = body
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder + "/certificate.pem", folder + "/key.pem")
        # The handshake belongs to the connection's thread, not to the one that accepts.
        self.socket = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], GONE):
            super().handle_error(request, client_address)


def complaint(report, body, chunk, times):
    """Why a client's report is not one of `times` whole downloads of `body`; None if it is.

    The buffered reader rounds the chunk down to whole blocks of its own.
    """
    lines = [line.partition("=") for line in report.splitlines()]
    downloads = [[int(part) for part in value.split(":")] for key, _, value in lines
                 if key == "download"]
    told = {key: value for key, _, value in lines}
    if [got for got, _ in downloads] != [len(body)] * times:
        return "of %d bytes a download came %s" % (len(body), downloads)
    sent = zlib.crc32(body)
    for got, crc in downloads:
        if crc != sent:
            return "the %d bytes that came are not those that were sent (CRC-32 %08x, not %08x)" % (
                got, crc, sent)
    if int(told["reads"]) and int(told["largest_buffer"]) <= chunk // 2:
        return "the largest buffer had %s bytes, not the chunk's %d" % (
            told["largest_buffer"], chunk)
    return None


def exchange(work, words):
    """Gives the client its terms, and returns its report."""
    with open(work + "/terms.part", "w") as file:
        file.write(" ".join(words))
    print("work", flush=True)
    os.rename(work + "/terms.part", work + "/terms")
    while not os.path.exists(work + "/report"):
        time.sleep(0.01)
    with open(work + "/report") as file:
        return file.read()


def main():
    work, folder = sys.argv[1:]
    chunk = int(os.environ.get("DOWNLOAD_CHUNK", "100")) * MIB
    buffers = os.environ.get("DOWNLOAD_BUFFERS", "zeroed")
    if buffers not in ("zeroed", "unzeroed"):
        sys.exit("DOWNLOAD_BUFFERS is neither zeroed nor unzeroed: %s" % buffers)
    body = random.Random(2016).randbytes(BODY)
    server = Server(folder, body)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = "https://127.0.0.1:%d/" % server.server_address[1]
    report = exchange(work, [url, str(chunk), str(TIMES), buffers])
    wrong = complaint(report, body, chunk, TIMES)
    if wrong:
        sys.exit(wrong)
    print("check", "%d-mib-%s" % (chunk // MIB, buffers))
    print("rest", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
