"""Checkpoints whose restore keeps failing here are left alone for a while."""

from __future__ import annotations

import threading
from dataclasses import dataclass

FAILURES = 3
SECONDS = 60.0


@dataclass(slots=True)
class _Trouble:
    failures: int = 0
    reason: str = ""
    until: float = float("-inf")


class Quarantine:
    """Counts restores that fail in a row; after the third a checkpoint is not tried for a minute, nor after each next.

    ``None`` stands for the start without a checkpoint. Times are of ``time.monotonic()``. All state is guarded by
    ``_lock``.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._troubles: dict[str | None, _Trouble] = {}

    def failed(self, checkpoint_id: str | None, reason: str, now: float) -> int:
        """Count a failure; returns how many there were in a row."""
        with self._lock:
            trouble = self._troubles.setdefault(checkpoint_id, _Trouble())
            trouble.failures += 1
            trouble.reason = reason
            if trouble.failures >= FAILURES:
                trouble.until = now + SECONDS
            return trouble.failures

    def succeeded(self, checkpoint_id: str | None) -> None:
        """End the row of failures."""
        with self._lock:
            self._troubles.pop(checkpoint_id, None)

    def names(self, now: float) -> list[str]:
        """Return the checkpoints that are not to be tried now."""
        with self._lock:
            return sorted(name for name, trouble in self._troubles.items() if name is not None and now < trouble.until)

    def why(self, checkpoint_id: str | None, now: float) -> str | None:
        """Return why a checkpoint is not to be tried now, ``None`` when it may be."""
        with self._lock:
            trouble = self._troubles.get(checkpoint_id)
            if trouble is None or now >= trouble.until:
                return None
            return (
                f"{trouble.failures} restores in a row failed here, the next is tried in "
                f"{trouble.until - now:.0f} s; the last one: {trouble.reason}"
            )
