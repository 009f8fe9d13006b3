"""Control groups of workers that were killed and never started again under their name."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from urllib.parse import unquote

from workers.sandbox.hierarchy import CgroupsUnavailableError, find_hierarchy, unmake
from workers.sandbox.run_folder import LOCK


def remove_abandoned_groups() -> None:
    """Remove the groups of run folders that nobody owns any more.

    Only of this product, only beside where this worker makes its own, and only those without processes: a group that
    has some refuses to be removed. What still runs is the matter of whoever takes its run folder over.
    """
    with contextlib.suppress(CgroupsUnavailableError):
        for parent in find_hierarchy().parents:
            with contextlib.suppress(FileNotFoundError):
                for folder in [entry for entry in parent.iterdir() if entry.is_dir()]:
                    if _abandoned(Path(unquote(folder.name))):
                        _remove(folder)


def _abandoned(run_dir: Path) -> bool:
    if not run_dir.is_absolute():
        return False
    if not run_dir.exists():
        # A worker that is just starting tries groups under its process's number.
        _, _, pid = run_dir.name.partition("probe-")
        return not (pid.isdecimal() and Path("/proc", pid).exists())
    try:
        lock = os.open(run_dir / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(lock)


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for entry in folder.iterdir():
            if entry.is_dir():
                entry.rmdir()
        unmake([folder])
