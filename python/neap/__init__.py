"""Neap's memory allocator, seen from inside a Python process.

Start a program under Neap with ``python -m neap run app.py``. Inside it, :func:`stats` says where
the heap's memory is, :func:`purge` gives free memory back to the kernel, and :func:`profile` writes
which calls allocate the memory. Importing this package does not change the allocator: that is
decided when the process starts.

CPython keeps objects of up to 512 bytes in arenas of its own, which are not part of the heap. With
``PYTHONMALLOC=malloc`` they come from the heap, too.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "NeapError",
    "NotUnderNeap",
    "Stats",
    "command",
    "is_active",
    "library",
    "profile",
    "purge",
    "stats",
    "version",
]

_FILES = Path(__file__).resolve().parent / "files"


class NeapError(RuntimeError):
    """Neap could not do what was asked."""


class NotUnderNeap(NeapError):
    """This process does not run under Neap."""

    def __init__(self) -> None:
        super().__init__(
            "this process does not run under Neap, and the allocator of a running process cannot "
            "be replaced; start it with: python -m neap run app.py (or set "
            f"LD_PRELOAD={_FILES / 'libneap.so'} before it starts)"
        )


@dataclass(frozen=True)
class Stats:
    """The heap of this process, in bytes except :attr:`large_blocks`.

    The counts are read one by one while other threads run, so they need not fit together exactly.
    """

    live: int
    """In blocks that the program has allocated and not freed."""
    free: int
    """Committed memory without live blocks, and the allocator's own data."""
    cached: int
    """The part of :attr:`free` that threads keep for their next allocations."""
    dirty: int
    """The part of :attr:`free` that :func:`purge` would give back to the kernel."""
    large: int
    """The part of :attr:`live` in blocks with pages of their own."""
    large_blocks: int
    """The number of such blocks."""
    committed: int
    """Memory that the heap may touch: ``live + free``."""
    resident: int
    """Resident memory of the whole process, as the kernel counts it."""


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


# The names as this process's own code finds them: Neap's if it is preloaded or linked, else the C
# library's.
_process = ctypes.CDLL(None)
_version = getattr(_process, "neap_version", None)
if _version is not None:
    _version.restype = ctypes.c_char_p
    _process.mallinfo2.restype = _Mallinfo2
    _process.malloc_trim.argtypes = [ctypes.c_size_t]


def is_active() -> bool:
    """Whether this process runs under Neap."""
    return _version is not None


def version() -> str:
    """The version of the library that serves this process.

    Raises :class:`NotUnderNeap` if it does not run under Neap.
    """
    if _version is None:
        raise NotUnderNeap()
    name: bytes = _version()
    return name.decode()


def library() -> Path:
    """The library of this package, for ``LD_PRELOAD``."""
    return _FILES / "libneap.so"


def command() -> Path | None:
    """The command ``neap`` of this package, or None.

    The command needs a newer C library than the library does, so the packages for musl and for old
    glibc have none.
    """
    path = _FILES / "neap"
    return path if path.is_file() else None


def stats() -> Stats:
    """Where the memory of this process's heap is.

    Raises :class:`NotUnderNeap` if the process does not run under Neap.
    """
    version()
    heap = _process.mallinfo2()
    with open("/proc/self/statm", "rb") as statm:
        resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    return Stats(
        live=heap.uordblks + heap.hblkhd,
        free=heap.fordblks,
        cached=heap.fsmblks,
        dirty=heap.keepcost,
        large=heap.hblkhd,
        large_blocks=heap.hblks,
        committed=heap.arena + heap.hblkhd,
        resident=resident,
    )


def purge() -> bool:
    """Gives all free memory of the heap back to the kernel now.

    Neap does so by itself after the decay time, one second if not set otherwise. Returns whether
    there was any. Raises :class:`NotUnderNeap` if the process does not run under Neap.
    """
    version()
    return bool(_process.malloc_trim(0))


def profile(path: str | os.PathLike[str], seconds: float | None = None) -> None:
    """Writes to `path` which calls allocate this process's memory, as a profile for pprof.

    With `seconds`, the profile contains what the process allocates during this time. The call waits
    so long; other threads run on. Without, it contains all samples since sampling began: start the
    program with ``python -m neap run --sample=512K -- app.py``.

    Raises :class:`NotUnderNeap` if the process does not run under Neap, and :class:`NeapError` if
    there are no samples, if the file cannot be written, or if this package has no command.
    """
    version()
    program = command()
    if program is None:
        raise NeapError(
            "this package has no command neap, which reads the profile: it needs glibc 2.34 or "
            "newer; profile the process from outside with a command from elsewhere"
        )
    if seconds is not None and not 0 < seconds <= 3600:
        raise ValueError(f"seconds must be above 0 and at most 3600, not {seconds}")
    span = "0" if seconds is None else f"{max(1, round(seconds * 1000))}ms"
    words = [
        os.fspath(program),
        "profile",
        str(os.getpid()),
        "--for",
        span,
        "--format",
        "pprof",
        "-o",
        os.path.abspath(os.fspath(path)),
        "-q",
    ]
    # The command itself needs neither the library nor its variables.
    own = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("NEAP_")}
    ended = subprocess.run(words, env=own, stderr=subprocess.PIPE, text=True, check=False)
    if ended.returncode != 0:
        lines = ended.stderr.strip().splitlines() or [f"neap ended with {ended.returncode}"]
        reason = lines[-1].replace("neap: error: ", "")
        if "does not sample" in reason:
            reason = (
                "this process has no samples: start it with python -m neap run --sample=512K -- "
                "app.py, or call neap.profile(path, seconds=10)"
            )
        raise NeapError(reason)
