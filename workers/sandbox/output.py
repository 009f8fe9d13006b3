"""What a sandbox prints: the worker's end of the pipe that is its standard output and error."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading

OUTPUT_BYTES = 64 << 10
"""Capacity of the pipe, and so the most that one read returns. A sandbox that prints more waits until it is read."""


class OutputPipe:
    """A pipe whose other end a sandbox holds. One for both streams, so that all lines stay in their order.

    ``close`` may be called from any thread, the rest from one at a time. ``_reading`` is guarded by ``_lock``.
    """

    def __init__(self, owner: int | None = None) -> None:
        """Make the pipe; inside the sandbox it belongs to the user ``owner``, who may open it by its name."""
        self._lock = threading.Lock()
        reading, self.writing = os.pipe2(os.O_CLOEXEC)
        self._reading: int | None = reading
        fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, OUTPUT_BYTES)
        os.set_blocking(reading, False)
        if owner is not None:
            os.fchown(self.writing, owner, owner)

    def given_away(self) -> None:
        """Close this process's copy of the end to write to, once the sandbox has its own."""
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1

    def fileno(self) -> int:
        """Return what to wait on for something to read; ``ValueError`` when closed."""
        with self._lock:
            if self._reading is None:
                raise ValueError("the pipe is closed")
            return self._reading

    def read(self) -> bytes:
        """Return what is there to read now, all of it; nothing when there is nothing, or never will be."""
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._reading is not None:
                return os.read(self._reading, OUTPUT_BYTES)
        return b""

    def close(self) -> None:
        """Close it; may be repeated."""
        self.given_away()
        with self._lock:
            if self._reading is not None:
                os.close(self._reading)
                self._reading = None
