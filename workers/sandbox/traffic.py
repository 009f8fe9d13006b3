"""What calls are doing now, so that work for calls to come gives way to them."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

_SHORT_CALL_SECONDS = 0.02
"""Many calls are over at once, and they come in bursts: only when none has come for as long does other work begin."""
_LONGEST_WAIT_SECONDS = 1.0
"""Calls that leave no room for longer get their sandboxes made ahead all the same, only slower."""
_LOAD_LOOK_SECONDS = 0.02


class Traffic:
    """Counts calls that start and calls that run. All state is guarded by ``_changed``."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._starting = 0
        self._running = 0
        self._last_call = float("-inf")
        self._stopped = False

    def came(self) -> None:
        """Note that a call asks for a sandbox."""
        with self._changed:
            self._last_call = time.monotonic()

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Note that a call's sandbox starts."""
        with self._changed:
            self._starting += 1
        try:
            yield
        finally:
            with self._changed:
                self._starting -= 1
                self._changed.notify_all()

    def begun(self) -> None:
        """Note that a call has its sandbox."""
        with self._changed:
            self._running += 1

    def ended(self) -> None:
        """Note that a call gave its sandbox back."""
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def give_way(self, *, to_running: bool) -> None:
        """Return when no call has come just now or starts, at the latest after a second.

        ``to_running``: also wait while the calls that run leave no core to spare.
        """
        deadline = time.monotonic() + _LONGEST_WAIT_SECONDS
        with self._changed:
            while not self._stopped:
                now = time.monotonic()
                pause = min(self._pause(now, to_running=to_running), deadline - now)
                if pause <= 0:
                    return
                self._changed.wait(pause)

    def _pause(self, now: float, *, to_running: bool) -> float:
        if self._starting:
            return _LONGEST_WAIT_SECONDS
        if (rest := self._last_call + _SHORT_CALL_SECONDS - now) > 0:
            return rest
        # Calls may sleep: what counts is whether anything wants the cores.
        if to_running and self._running >= (os.cpu_count() or 1) and cores_are_taken():
            return _LOAD_LOOK_SECONDS
        return 0.0


def cores_are_taken(loadavg: Path = Path("/proc/loadavg")) -> bool:
    """Return whether other threads than the one that asks want all cores of the machine at this moment."""
    runnable, _, _ = loadavg.read_text().split()[3].partition("/")
    return int(runnable) - 1 >= (os.cpu_count() or 1)
