"""What a worker says of itself in Redis."""

import json
from collections.abc import Mapping
from typing import Final, Literal, Self

from pydantic import Field, TypeAdapter, model_validator

from .call import Message
from .envelope import CallState, Start


class Announcement(Message):
    """A worker's entry, renewed with its lease."""

    name: str
    """Celery node name: ``worker@host``."""
    incarnation: str
    """Changes with every process start."""
    pid: int
    slots: int = Field(ge=1)
    max_sessions: int = Field(default=1000, ge=0)
    """Sessions it keeps at once."""
    evicts_idle_sessions: bool = False
    """Whether a session that is idle ends when a call needs its room."""
    draining: bool = False
    """Finishes what it has and takes nothing new."""
    flavor: str
    python: str
    """``major.minor`` inside its sandboxes."""
    runsc_version: str
    generation: str | None
    """``None``: no usable generation, cold starts only."""
    catalogue: str | None
    """Digest of the catalogue it serves."""
    checkpoints: tuple[str, ...] = ()
    gpu: bool = False
    """Whether its sandboxes have a GPU."""
    memory_bytes: int | None = Field(default=None, gt=0)
    """What its sandboxes may hold together; ``None``: not known, and not counted."""
    call_memory_bytes: int | None = Field(default=None, gt=0)
    """What a call may hold that asks for nothing else; it is counted as this much."""
    bounds_cpu: bool = True
    """Whether calls can ask for a number of cores."""

    @model_validator(mode="after")
    def _check_memory(self) -> Self:
        if self.memory_bytes is not None and (self.call_memory_bytes or 0) > self.memory_bytes:
            raise ValueError(
                f"a call holds {self.call_memory_bytes} bytes by itself, more than the worker's {self.memory_bytes}"
            )
        return self


SandboxState = Literal["busy", "idle", "ready", "created"]


class WorkerCounts(Message):
    """What a worker has and has done, told with each renewal of its lease, for people. No decision needs it."""

    sandboxes: dict[SandboxState, int]
    """Busy with a call, idle in a session, ready for a call, created and no more."""
    ready_bytes: int
    """Memory that the ready ones hold."""
    ready_bytes_limit: int
    quarantined: tuple[str, ...] = ()
    """Checkpoints that are not tried now, because their restores failed in a row."""
    starts: dict[Start, int]
    """Calls that ended here since the process began, by how they got their sandbox."""
    ended: dict[CallState, int]
    """Calls that ended here since then, by their end."""
    calls_per_second: float
    """Ends of the last ten seconds."""


ReadyCounts = Mapping[str | None, int]
"""Sandboxes that wait for a call, restored and connected, by checkpoint; ``None``: started without one."""

_COLD: Final = ""
"""Stands for ``None``, which can't be a key in JSON; no checkpoint has an empty id."""
_COUNTS: Final = TypeAdapter(dict[str, int])


def encode_ready(counts: ReadyCounts) -> str:
    """Return the field ``ready`` of a worker's entry, JSON: it changes far more often than the announcement."""
    return json.dumps({checkpoint_id or _COLD: count for checkpoint_id, count in counts.items()})


def decode_ready(text: bytes) -> dict[str | None, int]:
    """Return what :func:`encode_ready` wrote.

    Raises:
        ValueError: it did not write that.
    """
    return {checkpoint_id or None: count for checkpoint_id, count in _COUNTS.validate_json(text).items()}
