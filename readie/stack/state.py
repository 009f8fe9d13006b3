"""``stack.json``: what runs in a home, for the commands and for clients that are told nothing else."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from readie.errors import ReadieError
from readie.home import STACK_FILE

from .processes import Process, is_alive

STATE_VERSION: Final = 1
_LOCK_FILE: Final = "lock"

Role = Literal["redis", "router", "worker", "flower"]


class StackError(ReadieError):
    """The local stack can't be started, stopped or read; the text says why and what to do."""


class Part(BaseModel):
    """One process that the supervisor keeps running."""

    model_config = ConfigDict(frozen=True)

    role: Role
    process: Process | None = None
    """``None`` between two starts."""
    ready: bool = False
    restarts: int = 0
    failure: str | None = None
    """Why it was given up."""


class StackState(BaseModel):
    """Content of the file. It is there from a stack's first process to its last one."""

    model_config = ConfigDict(frozen=True)

    version: Literal[1] = STATE_VERSION
    readie: str = Field(default_factory=lambda: version("readie"))
    """Release that started the stack."""
    phase: Literal["starting", "running", "stopping"] = "starting"
    redis_url: str
    run: Path
    """Below it lie the workers' sandboxes."""
    flower_url: str | None = None
    """``None``: without Flower."""
    supervisor: Process
    parts: dict[str, Part] = {}


def read_state(home: Path) -> StackState | None:
    """Return what is known of the home's stack, or ``None`` when there is none.

    Raises:
        StackError: the file is damaged or of another release.
    """
    path = home / STACK_FILE
    try:
        return StackState.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StackError(f"{path} can't be read: {error.strerror}") from error
    except ValidationError as error:
        raise StackError(
            f"{path} is damaged or of another release of readie: stop what runs from that folder, then remove the file"
        ) from error


def write_state(home: Path, state: StackState) -> None:
    """Replace the file in one step: a reader sees the old or the new one, whole."""
    descriptor, name = tempfile.mkstemp(prefix=STACK_FILE, dir=home)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(state.model_dump_json(indent=2))
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(home / STACK_FILE)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def remove_state(home: Path) -> None:
    """Remove the file: nothing of the stack is left."""
    (home / STACK_FILE).unlink(missing_ok=True)


def living(state: StackState) -> dict[str, tuple[Role, Process]]:
    """Return role and process of each part that runs now."""
    return {
        name: (part.role, part.process)
        for name, part in state.parts.items()
        if part.process is not None and is_alive(part.process)
    }


@contextmanager
def owning(home: Path) -> Iterator[bool]:
    """Own the home, if no other process does: only the owner starts parts or changes the file.

    The kernel ends the ownership with the process, so a killed supervisor leaves none behind.
    """
    descriptor = os.open(home / _LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
