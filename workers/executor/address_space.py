"""The one limit that a sandbox can set itself, for workers that can't use control groups."""

from __future__ import annotations

import resource
from pathlib import Path


def bound(more_bytes: int) -> None:
    """Let this process, and each that it starts, map at most ``more_bytes`` beyond what it has mapped now.

    What is above fails with ``MemoryError``. Counted from now, because a library's import can map many times what it
    uses. Never undone: the function could undo it as well.
    """
    mapped_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = mapped_bytes + more_bytes
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
