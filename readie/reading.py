"""A client's access to what calls print and yield; ``stream``, ``logs`` and ``printing`` read from it."""

import atexit
import contextlib
import dataclasses
import os
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from redis import Redis

from .background import Background
from .connection import reaching_redis
from .endings import Endings
from .errors import ReadieError, SignatureError
from .ledger.streams import Position, Printed, StreamLedger, Taken
from .protocol.signing import BadSignatureError, Keyring, yielded_part
from .replies import Replies


class Owner(Protocol):
    """A reader whose call shall not outlive it."""

    def close(self) -> None:
        """Stop the call."""


class Reading:
    """What readers ask of Redis. Thread-safe.

    Methods raise ``ClusterUnavailableError`` when Redis can't be reached.
    """

    def __init__(self, redis: Redis, replies: Replies, url: str, keyring: Keyring, endings: Endings) -> None:
        self._ledger = StreamLedger(redis)
        self._replies = replies
        self._url = url
        self._keyring = keyring
        self._endings = endings
        self._owners: weakref.WeakSet[Owner] = weakref.WeakSet()
        self._background = Background()
        self._pid = os.getpid()

    def news(self, call_id: str) -> "Future[None]":
        """Return a future of the next word about a call; see ``Replies.news``."""
        return self._replies.news(call_id)

    def take_values(self, call_id: str, known: Position | None, now: Position | None) -> Taken:
        """Say what was taken of a call's values and get the next; see ``StreamLedger.take_values``.

        Raises ``SignatureError`` as well when one is not signed by a worker, where there are keys.
        """
        with reaching_redis(self._url):
            taken = self._ledger.take_values(call_id, self._replies.client_id, known, now)
        attempt, first = taken.position.attempt, taken.position.taken + 1
        try:
            values = [
                bytes(self._keyring.open(call_id, yielded_part(int(attempt), number), value))
                for number, value in enumerate(taken.values, first)
            ]
        except BadSignatureError as error:
            raise SignatureError(f"call {call_id}: a value can't be trusted: {error}") from None
        return dataclasses.replace(taken, values=values)

    def read_output(self, call_id: str, offset: int, *, listen: bool) -> Printed:
        """Return what a call has printed after ``offset`` bytes, a part at a time."""
        with reaching_redis(self._url):
            return self._ledger.read_output(call_id, offset, self._replies.client_id if listen else None)

    def stop(self, call_id: str) -> None:
        """Stop a call whose values nobody wants any more."""
        with reaching_redis(self._url):
            self._endings.stop_values(call_id)

    def start_background(self) -> None:
        """Be ready for ``later``."""
        self._background.start()
        atexit.unregister(self.close)
        atexit.register(self.close)

    def later(self, task: Callable[[], None]) -> None:
        """Have the background thread do something; from anywhere, also while an object is being finalized."""
        self._background.put(task)

    def own(self, owner: Owner) -> None:
        """Close ``owner`` with the client or the process, if it lives so long."""
        self._owners.add(owner)
        self.start_background()

    def close(self) -> None:
        """Stop the calls whose readers end with this client, and finish what is under way.

        Nothing in a forked child, whose parent reads on.
        """
        atexit.unregister(self.close)
        if self._pid != os.getpid():
            return
        with contextlib.suppress(ReadieError):
            for owner in list(self._owners):
                owner.close()
        self._background.close()
