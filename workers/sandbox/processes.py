"""The processes of a runsc state root, found by the ``--root`` flag that each of them carries."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

_END_SECONDS = 10.0


def processes_under(directory: Path) -> list[int]:
    """Return the pids of all processes whose runsc state root is ``directory`` or lies below it.

    A sandbox, its gofer and a runsc command that is still running all have the flag, whatever became of their
    parents; so this finds what a killed worker left, and nothing of another worker.
    """
    root = b"--root=" + os.fsencode(directory)
    found = []
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names are enough
        if not entry.isdigit():
            continue
        try:
            arguments = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile
            continue
        if any(argument == root or argument.startswith(root + b"/") for argument in arguments):
            found.append(int(entry))
    return found


def kill_processes_under(directory: Path) -> None:
    """Kill all processes of ``directory`` (see ``processes_under``) and wait until they have ended.

    Raises ``TimeoutError`` when one is still there after 10 seconds.
    """
    for pid in processes_under(directory):
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            kill_process(pidfd)
            if not wait_for_end(pidfd, _END_SECONDS):
                raise TimeoutError(f"process {pid} of {directory} did not end {_END_SECONDS:.0f} s after SIGKILL")
        finally:
            os.close(pidfd)


def kill_process(pidfd: int) -> None:
    """Send SIGKILL to the process of ``pidfd``, unless it has ended."""
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        return


def wait_for_end(pidfd: int, timeout: float) -> bool:
    """Return whether the process of ``pidfd`` has ended within ``timeout`` seconds."""
    waiting = select.poll()
    waiting.register(pidfd, select.POLLIN)
    return bool(waiting.poll(timeout * 1000))
