"""Stopping a stack, whatever is left of it."""

import contextlib
import logging
import os
import shutil
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .processes import Process, all_processes, arguments, is_alive, send, wait_gone
from .state import Role, StackError, StackState, living, owning, read_state, remove_state

STOP_ORDER: Final[tuple[tuple[Role, float], ...]] = (
    ("flower", 10.0),
    ("worker", 30.0),
    ("router", 10.0),
    ("redis", 20.0),
)
"""Each role and the seconds it has to stop by itself.

Workers finish their running calls; Redis is the last, it keeps the results.
"""
_KILL_SECONDS: Final = 5.0
_SUPERVISOR_SECONDS: Final = sum(seconds + _KILL_SECONDS for _, seconds in STOP_ORDER) + 5.0
_OWNERSHIP_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)

Wait = Callable[[Collection[Process], float], list[Process]]
"""Waits for the end of processes, at most some seconds; returns those that still run."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """What was stopped."""

    parts: tuple[str, ...]
    """Names, in the order of the stop."""
    without_supervisor: bool
    """The supervisor had been killed, and had left its parts behind."""


def stop_in_order(
    parts: Mapping[str, tuple[Role, Process]], wait: Wait, on_stopping: Callable[[str], None]
) -> list[str]:
    """Stop parts role by role; what does not go by itself is killed. Returns the names in that order."""
    stopped: list[str] = []
    for role, limit_seconds in STOP_ORDER:
        group = {name: process for name, (of, process) in parts.items() if of == role}
        for name, process in group.items():
            on_stopping(name)
            send(process, signal.SIGTERM)
        late = wait(list(group.values()), limit_seconds)
        for name, process in group.items():
            if process in late and send(process, signal.SIGKILL):
                _log.warning("%s did not stop in time and was killed", name)
        wait(late, _KILL_SECONDS)
        stopped += group
    return stopped


def remove_sandboxes(run: Path) -> None:
    """Remove what killed workers have left of their sandboxes. A worker that stopped by itself leaves nothing.

    Args:
        run: folder of this stack's sandboxes alone; goes too.
    """
    if not run.is_dir():
        return
    # Each process of a sandbox is told in its --root flag where in that folder it keeps its state.
    mark = b"--root=" + os.fsencode(run) + b"/"
    left = [process for process in all_processes() if any(a.startswith(mark) for a in arguments(process.pid))]
    for process in left:
        send(process, signal.SIGKILL)
    wait_gone(left, _KILL_SECONDS)
    for record in run.glob("*/*/cgroups"):
        _remove_control_groups(Path(line) for line in record.read_text().splitlines())
    shutil.rmtree(run)


def _remove_control_groups(folders: Iterable[Path]) -> None:
    """Remove the folders in which a worker made control groups; what ran in these is gone, or about to go."""
    deadline = time.monotonic() + _KILL_SECONDS
    for folder in folders:
        for group in (*folder.glob("*/"), folder):
            while group.is_dir():
                try:
                    group.rmdir()
                except OSError as error:
                    if time.monotonic() > deadline:
                        _log.error("control group %s can't be removed: %s", group, error.strerror)
                        break
                    time.sleep(0.01)
        with contextlib.suppress(OSError):  # it is common to all workers, and goes with the last
            folder.parent.rmdir()


def stop_stack(home: Path, on_stopping: Callable[[str], None] = lambda _: None) -> Stopped | None:
    """Stop the home's stack; returns when nothing of it is left. ``None``: none was there.

    Args:
        home: the stack's folder.
        on_stopping: told the names of the parts before the wait for them.

    Raises:
        StackError: it can't be stopped, because it is another user's or its file can't be read.
    """
    if not home.is_dir():
        return None
    deadline = time.monotonic() + _OWNERSHIP_SECONDS
    first: StackState | None = None
    try:
        while True:
            state = read_state(home)
            first = first or state
            if state is not None and is_alive(state.supervisor):
                on_stopping(", ".join(state.parts))
                _stop_supervisor(state.supervisor)
            with owning(home) as ours:
                if ours:
                    return _stop_rest(home, first, on_stopping)
            # A supervisor owns the home a moment before its file is there, and a moment after the file is gone.
            if time.monotonic() > deadline and (state is None or not is_alive(state.supervisor)):
                raise StackError(f"another process starts or stops the stack in {home} at this moment; try again")
            time.sleep(0.02)
    except PermissionError as error:
        raise StackError(
            f"the stack in {home} belongs to another user: {error.strerror}; stop it as that user"
        ) from error


def _stop_supervisor(supervisor: Process) -> None:
    send(supervisor, signal.SIGTERM)
    if wait_gone([supervisor], _SUPERVISOR_SECONDS):
        send(supervisor, signal.SIGKILL)
        wait_gone([supervisor], _KILL_SECONDS)


def _stop_rest(home: Path, first: StackState | None, on_stopping: Callable[[str], None]) -> Stopped | None:
    """Stop the parts that no supervisor stopped; the caller owns the home."""
    rest = read_state(home)
    if rest is None:
        if first is None:
            return None
        names = (name for role, _ in STOP_ORDER for name, part in first.parts.items() if part.role == role)
        return Stopped(tuple(names), without_supervisor=False)
    stopped = stop_in_order(living(rest), wait_gone, on_stopping)
    remove_sandboxes(rest.run)
    remove_state(home)
    return Stopped(tuple(stopped), without_supervisor=True) if stopped else None
