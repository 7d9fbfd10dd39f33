"""Proves that one library serves this process's malloc: identity.py FILE"""

import ctypes
import os
import sys


class Mallinfo2(ctypes.Structure):
    """glibc's: the fourth and fifth field are the number and the bytes of large blocks."""

    _fields_ = [(f"field_{number}", ctypes.c_size_t) for number in range(10)]


def file_of(address):
    """The file that is mapped at `address`."""
    for line in open("/proc/self/maps"):
        span, _, _, _, _, *file = line.split(maxsplit=5)
        start, end = (int(word, 16) for word in span.split("-"))
        if start <= address < end:
            return "".join(file).strip()
    return None


wanted = os.path.realpath(sys.argv[1])
process = ctypes.CDLL(None)
for name in "neap_version", "mallinfo2":
    function = getattr(process, name)
    found = file_of(ctypes.cast(function, ctypes.c_void_p).value)
    assert found == wanted, f"{name} is that of {found}, not of {wanted}"
process.neap_version.restype = ctypes.c_char_p
process.mallinfo2.restype = Mallinfo2
process.malloc.restype = ctypes.c_void_p
process.malloc.argtypes = [ctypes.c_size_t]

before = process.mallinfo2()
assert process.malloc(64 << 20)
after = process.mallinfo2()
assert after.field_3 == before.field_3 + 1, "malloc is another's"
assert after.field_4 >= before.field_4 + (64 << 20), "malloc is another's"
print("under Neap", process.neap_version().decode(), "in", wanted)
