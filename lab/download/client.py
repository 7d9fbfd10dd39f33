"""Downloads by requests over pyOpenSSL with the receive buffers of 2016.

Arguments: the URL, the certificate to trust, the chunk in bytes, the limit in seconds, how many
downloads, and the buffers, `zeroed` (as in 2016) or `unzeroed` (as pyOpenSSL makes them today).
Prints `key=value` lines: one `download` for each, with its bytes and their CRC-32, and others such
as `heap`, the file that contains this process's malloc.

What was slow in 2016 (psf/requests#3729, pyca/pyopenssl#577): `iter_content(chunk)` asks the
buffered reader of http.client for a chunk. For each read, the reader asks pyOpenSSL for the whole
rest of the chunk. pyOpenSSL made a buffer of that size, `_ffi.new("char[]", n)`, which cffi zeroes.
But a TLS read returns one record, at most 16 KiB, and then the buffer is freed. The versions in
`requirements.txt` still do all of this, with one exception: since 17.0 pyOpenSSL makes the buffer
with `_no_zero_allocator`. `restore_2016` gives that name its old value. That one assignment is the
whole change; the rest is the packages' own code.

The zeros are calloc's: since 1.10 cffi's `ffi.new` calls only the C library's calloc (its issue
295). Up to 1.9 it called malloc and memset, which writes every byte under any allocator and says
nothing about them. That part of 2016 is not restored.
"""

import ctypes
import os
import resource
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
    """Counts the reads, and ends the stream when time is up.

    It is an end and no error: what arrived until then is passed on and checked as usual.
    """

    deadline = None
    out_of_time = False
    reads = 0
    largest = 0

    def recv_into(self, buffer, nbytes=None, flags=None):
        if Connection.deadline is not None:
            if time.perf_counter() > Connection.deadline:
                Connection.out_of_time = True
                return 0
            Connection.reads += 1
            Connection.largest = max(Connection.largest, len(buffer))
        return super().recv_into(buffer, nbytes, flags)


def download(session, url, certificate, chunk, limit):
    """Bytes, their CRC-32, and the seconds from the head of the answer to the last byte.

    The time includes the check. Otherwise the server would continue outside the measured time,
    and more so the smaller the chunk is.
    """
    total, crc = 0, 0
    with session.get(url, verify=certificate, stream=True) as response:
        response.raise_for_status()
        start = time.perf_counter()
        Connection.deadline = Connection.deadline or start + limit
        for content in response.iter_content(chunk):
            total += len(content)
            crc = zlib.crc32(content, crc)
        return total, crc, time.perf_counter() - start


def downloads(url, certificate, chunk, limit, times):
    """Downloads one after the other, as many as the limit allows."""
    with requests.Session() as session:
        session.trust_env = False
        while times > 0 and not Connection.out_of_time:
            yield download(session, url, certificate, chunk, limit)
            times -= 1


def home(name):
    """The mapped file that contains the process's function `name`."""
    address = ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value
    for line in open("/proc/self/maps"):
        fields = line.rstrip("\n").split(None, 5)
        start, end = (int(part, 16) for part in fields[0].split("-"))
        if start <= address < end:
            return fields[5] if len(fields) == 6 else "anonymous memory"
    return "nowhere"


def heap():
    files = {home(name) for name in ("malloc", "free", "calloc", "realloc")}
    # If a program takes a function's address, it resolves to a stub in the program, as in Debian's
    # python3. The loader's log, which the lab has read before, tells where the stub leads.
    files.discard(os.path.realpath("/proc/self/exe"))
    if len(files) != 1:
        sys.exit("malloc, free, calloc and realloc are of several files: %s" % sorted(files))
    return files.pop()


def main():
    url, certificate, chunk, limit, times, buffers = sys.argv[1:]
    if buffers == "zeroed":
        restore_2016()
    OpenSSL.SSL.Connection = Connection
    urllib3.contrib.pyopenssl.inject_into_urllib3()
    done = list(downloads(url, certificate, int(chunk), float(limit), int(times)))
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    for total, crc, _ in done:
        print("download=%d:%d" % (total, crc))
    print("seconds=%.6f" % sum(seconds for _, _, seconds in done))
    print("end=%s" % ("time" if Connection.out_of_time else "body"))
    print("reads=%d\nlargest_buffer=%d" % (Connection.reads, Connection.largest))
    print("peak_rss_kib=" + status["VmHWM"].split()[0])
    print("minor_faults=%d" % resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
    print("heap=" + heap())


main()
