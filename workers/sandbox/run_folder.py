"""A folder for sandboxes' files, owned by one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from pathlib import Path

from workers.sandbox.cgroup import remove_leftover_cgroups
from workers.sandbox.processes import kill_processes_under

LOCK = "lock"
"""Name of the file that the owner of a run folder has locked."""


def own(run_dir: Path) -> int:
    """Make ``run_dir`` this process's own; closing the returned descriptor, or the process's end, gives it up.

    Raises ``RuntimeError`` when another process has it.
    """
    run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(run_dir / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise RuntimeError(f"a running worker has the run folder {run_dir}; give this one another") from None
    return descriptor


def remove_leftovers(run_dir: Path) -> None:
    """Remove all sandboxes below ``run_dir``; the caller owns it, so they are nobody's."""
    kill_processes_under(run_dir)
    remove_leftover_cgroups(run_dir)
    for entry in run_dir.iterdir():
        if entry.is_dir():
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(entry)
