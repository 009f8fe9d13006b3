"""Hearing that a control group of version 1 ran out of memory; version 2 needs no ear, it kills the group as one."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable
from pathlib import Path


class OomWatcher:
    """Tells when groups run out of memory, from a thread of its own.

    The kernel kills one process of such a group, and the others might wait for it for ever. ``_watched`` is guarded by
    ``_lock``.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[int, Callable[[], None]] = {}
        self._poll = select.epoll()
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._poll.register(self._stop, select.EPOLLIN)
        self._thread = threading.Thread(target=self._listen, name="oom-watcher", daemon=True)
        self._thread.start()

    def watch(self, group: Path, exhausted: Callable[[], None]) -> int:
        """Call ``exhausted``, which must be quick, when the group is out of memory; returns what ``forget`` takes."""
        event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            control = os.open(group / "memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
            try:
                (group / "cgroup.event_control").write_text(f"{event} {control}")
            finally:
                os.close(control)
        except OSError:
            os.close(event)
            raise
        with self._lock:
            self._watched[event] = exhausted
            self._poll.register(event, select.EPOLLIN)
        return event

    def forget(self, event: int) -> None:
        """Stop to watch a group; before it is removed, because that is told as well."""
        with self._lock:
            del self._watched[event]
            self._poll.unregister(event)
            os.close(event)

    def close(self) -> None:
        """End the thread; no group is watched any more."""
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        self._poll.close()
        os.close(self._stop)

    def _listen(self) -> None:
        while True:
            for event, _ in self._poll.poll():
                if event == self._stop:
                    return
                with self._lock:
                    exhausted = self._watched.get(event)
                    # A number that was closed meanwhile and given out again has nothing to read.
                    with contextlib.suppress(BlockingIOError):
                        if exhausted is not None:
                            os.eventfd_read(event)
                            exhausted()
