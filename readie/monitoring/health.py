"""Whether a process lives, and whether it serves."""

import time
from typing import Final

_STUCK_SECONDS: Final = 60.0
"""A loop may wait for an answer of a Redis that is not there; one that takes longer than this is stuck."""


class Health:
    """Told by the process' main loop, asked from any thread.

    Args:
        lease_seconds: how long a renewal of the process' lease in Redis holds.
    """

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._turned_at = time.monotonic()
        self._renewed_at: float | None = None
        self._draining = False

    def turned(self) -> None:
        """Say that the loop has come round."""
        self._turned_at = time.monotonic()

    def renewed(self) -> None:
        """Say that Redis knows of this process and sends it calls."""
        self._renewed_at = time.monotonic()

    def drains(self) -> None:
        """Say that no more calls are taken."""
        self._draining = True

    def why_dead(self) -> str | None:
        """Return why only another process would help, ``None`` when all is well. The absence of Redis is no reason."""
        still = time.monotonic() - self._turned_at
        return f"its loop has stood still for {still:.0f} s" if still > _STUCK_SECONDS else None

    def why_not_ready(self) -> str | None:
        """Return why it can't take calls now, ``None`` when it can."""
        if self._draining:
            return "it takes no more calls: it was told to stop"
        if self._renewed_at is None:
            return "it has not reached Redis yet"
        since = time.monotonic() - self._renewed_at
        if since > self._lease_seconds:
            return f"it has not renewed its lease in Redis for {since:.0f} s"
        return self.why_dead()
