"""What a call ends with: an outcome, its value or error, and a report of how it went."""

from enum import StrEnum
from typing import Literal

from pydantic import Field

from .call import Message
from .codes import ErrorCode


class CallState(StrEnum):
    """States of a call's record; the last four are final."""

    QUEUED = "queued"
    PLACED = "placed"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def ended(self) -> bool:
        """Whether nothing can change this call any more."""
        return self in _FINAL


_FINAL = frozenset({CallState.DONE, CallState.FAILED, CallState.CANCELLED, CallState.EXPIRED})

Start = Literal["warm", "restored", "cold"]
"""How a call got its sandbox."""

Pool = Literal["ready", "created", "none"]
"""What the worker had for a call: a sandbox that was connected already, one that had yet to be restored or started, or
none, so that it was made for this call."""


class Failure(Message):
    """Why a call has no value."""

    code: ErrorCode
    message: str
    limit_bytes: int = 0
    peak_bytes: int = 0
    """What the sandbox could hold and what it held at most, for ``ErrorCode.MEMORY_LIMIT``."""
    type: str = ""
    """Qualified name of the remote exception's class, for ``ErrorCode.REMOTE``."""
    bases: tuple[str, ...] = ()
    """Qualified names of that class and of all its bases."""
    traceback: str = ""
    flavor: str = ""
    """What the call ran with, for ``ErrorCode.REMOTE``."""


class Report(Message):
    """How one call went. All times in seconds.

    ``phases`` follow each other without overlap, so they add up to ``total_seconds``:

    ========== ==================================================================
    serialize  client: scan for hints, pickle function and arguments
    queue      from the submission to a router's hand (includes waiting for room)
    route      the router's decision
    deliver    from the placement until the worker began with it
    packages   installing the call's packages, or finding them; only for a call with some
    sandbox    until a sandbox was taken from those made ahead, or was made
    start      restore of the checkpoint, or start of Python
    connect    connection to the executor and its greeting
    load       payload into the sandbox and unpickling (imports its pickles need)
    execute    the function itself
    dump       pickling the result and taking it out of the sandbox
    store      the result into Redis
    return     the result to the client and unpickling
    ========== ==================================================================
    """

    worker: str | None = None
    start: Start | None = None
    checkpoint_id: str | None = None
    pool: Pool | None = None
    attempt: int = 0
    reason: str = ""
    """Why the router chose this start."""
    fallback: str | None = None
    """Why the worker could not follow the router's choice and started cold."""
    session_id: str | None = None
    sandbox: str | None = None
    """The session's."""
    restarted: str | None = None
    """Why the session had been lost that this call opened again."""
    ignored_globals: tuple[str, ...] = ()
    """Globals that came with the function and that the session had already, with another value."""
    packages: str | None = None
    """How the call came to its ``packages``, where it has any."""
    predicted_seconds: float | None = None
    output_bytes: int | None = None
    """What the attempt printed; ``None`` when that is not known, because its worker did not end it."""
    yielded: int | None = None
    """Values that the attempt of a generator function has yielded."""
    phases: dict[str, float] = Field(default_factory=dict)
    total_seconds: float = 0.0

    @property
    def start_seconds(self) -> float:
        """Time from the worker's beginning to the function's first line, which ``predicted_seconds`` predicts."""
        return sum(self.phases.get(name, 0.0) for name in ("sandbox", "start", "connect", "load"))


class Envelope(Message):
    """The stored end of a call."""

    id: str
    state: Literal[CallState.DONE, CallState.FAILED, CallState.CANCELLED, CallState.EXPIRED]
    failure: Failure | None = None
    value: str | None = None
    """Base64 of the pickled value (or the pickled exception) when it is small enough."""
    value_bytes: int = 0
    value_by_reference: bool = False
    """Whether the value is the Redis value ``keys.value(id)``."""
    submitted_at: float = 0.0
    """Redis clock, seconds since the epoch."""
    ended_at: float = 0.0
    report: Report = Report()
