"""Ends calls and sessions for a client: by itself, or through a router where its Redis user has rights to its own keys.

What ends a call changes what all calls share, so a user that ``readie acl`` has made can only ask for it.
"""

import uuid

from redis import Redis

from .ledger import Cancelled
from .ledger.sessions import SessionLedger
from .ledger.streams import StreamLedger
from .ledger.wishes import Wish, Wishes
from .protocol.owner import owned, owner_of
from .protocol.session import SessionState


class Endings:
    """What a client can end. Methods raise ``RedisError``.

    Args:
        redis: the client's connections.
        owner: of what the client makes; empty: it makes what is nobody's, and ends it by itself.
    """

    def __init__(self, redis: Redis, owner: str) -> None:
        self._owner = owner
        self._calls = StreamLedger(redis)
        self._sessions = SessionLedger(redis)
        self._wishes = Wishes(self._sessions, self._calls)

    def cancel(self, call_id: str) -> bool:
        """Cancel a call; returns whether it had not ended."""
        if not self._asks(call_id):
            return self._calls.cancel(call_id) is not Cancelled.ENDED
        state, _ = self._calls.state(call_id)
        if state is None or state.ended:
            return False
        self._wish(Wish.CANCEL, call_id)
        return True

    def stop_values(self, call_id: str) -> None:
        """Stop a call whose values nobody wants any more."""
        if self._asks(call_id):
            self._wish(Wish.STOP, call_id)
        else:
            self._calls.stop_values(call_id)

    def close(self, session_id: str, *, may_open: bool) -> bool:
        """Close a session, or one that a call on its way ``may_open``; returns whether it was open."""
        if not self._asks(session_id):
            return self._sessions.end_session(session_id, SessionState.CLOSED, "was closed", even_unopened=may_open)
        (record,) = self._sessions.session_records([session_id])
        self._wish(Wish.CLOSE_UNOPENED if may_open else Wish.CLOSE, session_id)
        return record is not None and not record.state.ended

    def _asks(self, target: str) -> bool:
        """Whether it is to be asked for. What is another's ends by who has the rights of a role, or not at all."""
        return bool(self._owner) and owner_of(target) == self._owner

    def _wish(self, wish: Wish, target: str) -> None:
        self._wishes.leave(owned(self._owner, uuid.uuid4().hex), wish, target)
