"""Waiting for a file of the control directory, or for the end of the sandbox that should have made it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import threading
import time
from collections.abc import Iterator
from pathlib import Path

_IN_MOVED_TO = 0x80
_IN_CREATE = 0x100
_EVENT_BUFFER_BYTES = 4096

_libc = ctypes.CDLL(None, use_errno=True)


class ProcessEndedError(Exception):
    """The process that should make the file has ended, and the file is not there."""


class FileWaiter:
    """Waits for files with inotify, from any number of threads.

    Keeps one inotify instance per concurrent wait and uses it again, because closing one takes the kernel 15 ms, as
    long as all the rest of getting ready. ``_idle`` is guarded by ``_lock``.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[int] = []

    def wait(self, path: Path, *, pidfd: int, deadline: float) -> None:
        """Return once ``path`` exists; it is to appear by a rename or be created whole.

        Wakes up on the event, without polling. Raises ``ProcessEndedError`` when the process of ``pidfd`` ends first,
        ``TimeoutError`` when ``deadline`` (``time.monotonic()``) passes.
        """
        with self._watch(path.parent) as inotify:
            waiting = select.poll()
            waiting.register(inotify, select.POLLIN)
            waiting.register(pidfd, select.POLLIN)
            # Looked for after the watch was set, so that no moment is missed.
            while not os.path.lexists(path):
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise TimeoutError(f"{path.name} did not appear in time")
                ready = [descriptor for descriptor, _ in waiting.poll(remaining * 1000)]
                if inotify in ready:
                    # May be what is left of an earlier wait; the loop looks for the file itself.
                    os.read(inotify, _EVENT_BUFFER_BYTES)
                elif pidfd in ready and not os.path.lexists(path):
                    raise ProcessEndedError(f"the sandbox ended before {path.name} appeared")

    def close(self) -> None:
        """Close what is kept; no wait may be going on."""
        with self._lock:
            while self._idle:
                os.close(self._idle.pop())

    @contextlib.contextmanager
    def _watch(self, directory: Path) -> Iterator[int]:
        with self._lock:
            inotify = self._idle.pop() if self._idle else None
        if inotify is None:
            inotify = _checked(_libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK), directory)
        try:
            watch = _checked(
                _libc.inotify_add_watch(inotify, os.fsencode(directory), _IN_MOVED_TO | _IN_CREATE), directory
            )
            try:
                yield inotify
            finally:
                _libc.inotify_rm_watch(inotify, watch)
        finally:
            with self._lock:
                self._idle.append(inotify)


def _checked(result: int, path: Path) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"inotify: {os.strerror(error)}", str(path))
    return result
