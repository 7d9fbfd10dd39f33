"""Downloads by requests over pyOpenSSL with the receive buffers of 2016.

Arguments: the run's directory and the certificate to trust. The file `terms` in the directory,
which the server writes, has the URL, the chunk in bytes, how many downloads, and the buffers:
`zeroed` (as in 2016) or `unzeroed` (as pyOpenSSL makes them today). Writes the file `report` there:
one line `download=BYTES:CRC-32` for each download, the number of reads and the largest buffer. Then
the client idles until its standard input ends.

What was slow in 2016 (psf/requests#3729, pyca/pyopenssl#577): `iter_content(chunk)` asks the
buffered reader of http.client for a chunk. For each read, the reader asks pyOpenSSL for the whole
rest of the chunk. pyOpenSSL made a buffer of that size, `_ffi.new("char[]", n)`, which cffi zeroes.
But a TLS read returns one record, at most 16 KiB, and then the buffer is freed. The versions in
`case.toml` still do all of this, with one exception: since 17.0 pyOpenSSL makes the buffer with
`_no_zero_allocator`. `restore_2016` gives that name its old value. That one assignment is the whole
change; the rest is the packages' own code.

The zeros are calloc's: since 1.10 cffi's `ffi.new` calls only the C library's calloc (its issue
295). Up to 1.9 it called malloc and memset, which writes every byte under any allocator and says
nothing about them. That part of 2016 is not restored.
"""

import os
import sys
import time
import zlib

import OpenSSL.SSL
import requests
import urllib3.contrib.pyopenssl


def restore_2016():
    if not hasattr(OpenSSL.SSL, "_no_zero_allocator"):
        sys.exit("this pyOpenSSL has no _no_zero_allocator: the experiment is another")
    OpenSSL.SSL._no_zero_allocator = OpenSSL.SSL._ffi.new


class Connection(OpenSSL.SSL.Connection):
    """Counts the reads and tells the largest buffer."""

    reads = 0
    largest = 0

    def recv_into(self, buffer, nbytes=None, flags=None):
        Connection.reads += 1
        Connection.largest = max(Connection.largest, len(buffer))
        return super().recv_into(buffer, nbytes, flags)


def download(session, url, certificate, chunk):
    """Bytes and their CRC-32, as a line of the report."""
    total, crc = 0, 0
    with session.get(url, verify=certificate, stream=True) as response:
        response.raise_for_status()
        for content in response.iter_content(chunk):
            total += len(content)
            crc = zlib.crc32(content, crc)
    return "download=%d:%d" % (total, crc)


def terms(work):
    """The words of the server's file, once it is there."""
    while not os.path.exists(work + "/terms"):
        time.sleep(0.01)
    with open(work + "/terms") as file:
        return file.read().split()


def main():
    work, certificate = sys.argv[1:]
    OpenSSL.SSL.Connection = Connection
    urllib3.contrib.pyopenssl.inject_into_urllib3()
    url, chunk, times, buffers = terms(work)
    if buffers == "zeroed":
        restore_2016()
    with requests.Session() as session:
        session.trust_env = False
        lines = [download(session, url, certificate, int(chunk)) for _ in range(int(times))]
    lines += ["reads=%d" % Connection.reads, "largest_buffer=%d" % Connection.largest]
    with open(work + "/report.part", "w") as file:
        file.write("\n".join(lines) + "\n")
    os.rename(work + "/report.part", work + "/report")
    sys.stdin.read()


main()
