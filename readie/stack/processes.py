"""Processes of this machine, told apart from later ones that the kernel gives the same pid."""

import ctypes
import os
import select
import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

PR_SET_CHILD_SUBREAPER: Final = 36
_RESTORED_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores some, the shell's background jobs others; what is started has the defaults."""


class Process(BaseModel):
    """One process: a pid means it only together with the start time."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pid: int
    start: str
    """Boot id and the clock tick since that boot: no later process has both the pid and this."""


def _stat(pid: int) -> tuple[str, int, str] | None:
    """Return state letter, parent pid and start tick; ``None`` when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], int(fields[1]), fields[19]


def identify(pid: int) -> Process | None:
    """Return the process that has this pid now, a zombie as well."""
    stat = _stat(pid)
    if stat is None:
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return Process(pid=pid, start=f"{boot}/{stat[2]}")


def is_alive(process: Process) -> bool:
    """Return whether it runs still; a zombie does not."""
    stat = _stat(process.pid)
    return stat is not None and stat[0] not in "ZX" and identify(process.pid) == process


def send(process: Process, number: signal.Signals) -> bool:
    """Signal this very process; ``False`` when it is gone, whoever has its pid now.

    Raises:
        PermissionError: it belongs to another user.
    """
    try:
        # The descriptor stands for whoever has the pid now and no one later, so the check below can't be overtaken.
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def wait_gone(processes: Collection[Process], limit_seconds: float) -> list[Process]:
    """Wait for the end of all; return those that still run after the limit."""
    deadline = time.monotonic() + limit_seconds
    for process in processes:
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            continue
        try:
            if is_alive(process):
                select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        finally:
            os.close(descriptor)
    return [process for process in processes if is_alive(process)]


def spawn(command: Sequence[str], environment: Mapping[str, str], output: Path) -> Process:
    """Start a program in a session of its own; its output is appended to a file.

    Args:
        command: absolute path of the program, and its arguments.
        environment: all of it.
        output: file for standard output and error.

    Raises:
        OSError: the program can't be started.
    """
    pid = os.posix_spawn(
        command[0],
        list(command),
        dict(environment),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(output), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigdef=_RESTORED_SIGNALS,
        setsigmask=(),
    )
    process = identify(pid)
    assert process is not None, "a child stays in /proc until its parent has waited for it"
    return process


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that none can be lost sight of."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def children() -> list[Process]:
    """Return the processes whose parent is this one."""
    own = os.getpid()
    return [process for process in all_processes() if (stat := _stat(process.pid)) is not None and stat[1] == own]


def all_processes() -> Iterator[Process]:
    """Yield every process of this machine (of this container, in one)."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (process := identify(int(entry.name))) is not None:
            yield process


def arguments(pid: int) -> list[bytes]:
    """Return a process's command line, the program first; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def reap() -> Iterator[tuple[int, int]]:
    """Yield pid and exit code (negative: the signal) of each child that has ended, adopted ones as well."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, os.waitstatus_to_exitcode(status)
