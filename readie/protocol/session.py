"""A session as its record in Redis has it."""

from enum import StrEnum

from .call import Message


class SessionState(StrEnum):
    """States of a session's record; the last three are final."""

    OPENING = "opening"
    """A call is to start its sandbox."""
    IDLE = "idle"
    BUSY = "busy"
    CLOSED = "closed"
    EXPIRED = "expired"
    LOST = "lost"

    @property
    def ended(self) -> bool:
        """Whether its sandbox is gone, or soon will be."""
        return self in {SessionState.CLOSED, SessionState.EXPIRED, SessionState.LOST}


class SessionRecord(Message):
    """A session as its record has it. Times are Redis clock, seconds."""

    id: str
    state: SessionState
    worker: str = ""
    sandbox: str = ""
    """Empty until it is up."""
    checkpoint_id: str | None = None
    """What the sandbox was restored from; ``None``: it was started cold."""
    idle_ttl_seconds: float = 0.0
    opened_at: float = 0.0
    last_used_at: float = 0.0
    waiting: int = 0
    """Calls that wait for their turn."""
    why: str = ""
    """Why it has ended."""
