"""Standard output and error of the executor: one pipe, read by the worker, for all that runs in the sandbox.

A pipe of the host instead of frames on the connection: C code may write to it while it holds the interpreter's lock,
and what was written is not lost when the sandbox dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import sys
from collections.abc import Iterator

_DESCRIPTORS = (1, 2)
_LINE_BUFFERED = 1
"""glibc's _IOLBF."""

_libc = ctypes.CDLL(None)
_libc.setvbuf.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t]
_libc.fflush.argtypes = [ctypes.c_void_p]


def write_by_line() -> None:
    """Have each printed line leave the process at once, as on a terminal, from Python and from C code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    _libc.setvbuf(_c_stdout(), None, _LINE_BUFFERED, 0)


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Drop what is printed in the block: nobody reads the pipe before there is a call."""
    kept = [os.dup(descriptor) for descriptor in _DESCRIPTORS]
    null = os.open(os.devnull, os.O_WRONLY)
    for descriptor in _DESCRIPTORS:
        os.dup2(null, descriptor)
    os.close(null)
    try:
        yield
    finally:
        flush()
        for descriptor, copy in zip(_DESCRIPTORS, kept, strict=True):
            os.dup2(copy, descriptor)
            os.close(copy)


def flush() -> None:
    """Write what is printed but not yet written: lines without an end."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the function may have closed it, or put anything in its place
            stream.flush()
    # Not all of C's streams: another thread may hold the lock of one that it reads from.
    _libc.fflush(_c_stdout())


def _c_stdout() -> ctypes.c_void_p:
    return ctypes.c_void_p.in_dll(_libc, "stdout")
