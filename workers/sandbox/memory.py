"""How much memory processes hold."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def proportional_bytes(pids: Iterable[int]) -> int:
    """Return the memory that these processes and their descendants hold; shared pages count in parts (PSS).

    A process that has ended holds nothing.
    """
    return sum(_proportional_bytes(pid) for root in pids for pid in _with_descendants(root))


def _with_descendants(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        try:
            for thread in Path(f"/proc/{parent}/task").iterdir():
                found += [int(child) for child in (thread / "children").read_text().split()]
        except OSError:
            continue
    return found


def _proportional_bytes(pid: int) -> int:
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    for line in rollup.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0
