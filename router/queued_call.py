"""A call in a router's hand."""

import time
from dataclasses import dataclass, field

from .message import CallMessage


@dataclass(slots=True, eq=False)
class QueuedCall:
    """A call in a router's hand."""

    message: CallMessage
    item: bytes
    """As it was on the submit queue."""
    group: str = ""
    """The group it waits in; empty when it is on the router's taken list instead."""
    patient: bool = False
    """Whether it goes on waiting when the workers that it waits for are not there at this moment."""
    attempt: int = 1
    """Number of the attempt to place."""
    restarted: str | None = None
    """Why the session was lost before that the call opens."""
    taken_at: float = field(default_factory=time.monotonic)

    @property
    def id(self) -> str:
        """The call's id."""
        return self.message.header.id

    @property
    def taken(self) -> bytes:
        """The item on the router's taken list, if it is there."""
        return b"" if self.group else self.item

    @property
    def memory_bytes(self) -> int | None:
        """What it asks for."""
        return self.message.header.options.memory_bytes
