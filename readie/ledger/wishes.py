"""What clients that have rights to their own keys only ask routers to do: to cancel, to stop, to close.

Such an end changes what all calls share, and may give a session's turn to another call. A wish lies under a key that
only its owner can write, which is what lets a router know whose it is.
"""

from enum import StrEnum
from typing import Final, cast

from readie.protocol import keys
from readie.protocol.owner import owner_of
from readie.protocol.session import SessionState

from .sessions import SessionLedger
from .streams import StreamLedger

_WISH_SECONDS: Final = 3600


class Wish(StrEnum):
    """What to do with a call or a session."""

    CANCEL = "cancel"
    """A call, also one that runs."""
    STOP = "stop"
    """A call whose values nobody reads any more."""
    CLOSE = "close"
    """A session, if it is open."""
    CLOSE_UNOPENED = "close-unopened"
    """A session, also one that a call on its way would open."""


class Wishes:
    """Takes wishes down and carries them out.

    Args:
        sessions: a ledger of sessions.
        streams: one of calls.
    """

    def __init__(self, sessions: SessionLedger, streams: StreamLedger) -> None:
        self._sessions = sessions
        self._streams = streams
        self._redis = sessions.redis

    def leave(self, wish_id: str, wish: Wish, target: str) -> None:
        """Ask a router to do something with a call or a session of the same owner."""
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.set(keys.wish(wish_id), f"{wish} {target}", ex=_WISH_SECONDS)
            pipe.rpush(keys.SUBMIT_QUEUE, f"{keys.WISH_WORD}{wish_id}")
            pipe.execute()

    def carry_out(self, wish_id: str) -> str | None:
        """Do what was asked for, and say what it was; ``None``: nothing, or not by the owner of what it is about."""
        text = cast("bytes | None", self._redis.get(keys.wish(wish_id)))
        if text is None:
            return None
        self._redis.delete(keys.wish(wish_id))
        word, _, target = text.decode(errors="replace").partition(" ")
        if word not in list(Wish) or owner_of(target) != owner_of(wish_id):
            return None
        match Wish(word):
            case Wish.CANCEL:
                self._streams.cancel(target)
            case Wish.STOP:
                self._streams.stop_values(target)
            case Wish.CLOSE | Wish.CLOSE_UNOPENED:
                unopened = word == Wish.CLOSE_UNOPENED
                self._sessions.end_session(target, SessionState.CLOSED, "was closed", even_unopened=unopened)
        return f"{word} {target}"
