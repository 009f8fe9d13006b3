"""What is kept of an item of a queue that could not be read."""

import time
from typing import Final, Self

from pydantic import Field

from .call import Message

MOST_DEAD_LETTERS: Final = 1000
_MOST_ITEM_CHARACTERS: Final = 2000


class DeadLetter(Message):
    """One such item."""

    reason: str
    """What is wrong with it."""
    queue: str
    """Where it was."""
    at: float
    """When it was put away: seconds since the epoch."""
    item: str = Field(max_length=_MOST_ITEM_CHARACTERS)
    """The beginning of it; what is no text is shown by escapes."""

    @classmethod
    def of(cls, item: bytes, queue: str, reason: str) -> Self:
        """Return what is to be kept of an item."""
        text = item[: 4 * _MOST_ITEM_CHARACTERS].decode("utf-8", "backslashreplace")[:_MOST_ITEM_CHARACTERS]
        return cls(reason=reason, queue=queue, at=time.time(), item=text)
