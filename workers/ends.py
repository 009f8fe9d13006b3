"""The ends of calls: stored whatever becomes of Redis, and told again to one that has lost its last moments."""

import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from readie.ledger import Ended
from readie.ledger.holding import HoldingLedger
from readie.protocol.envelope import Envelope
from readie.protocol.payload import Buffer

from .patience import Patience

_REMEMBERED_SECONDS: Final = 60.0
"""A Redis that is killed has its last second on no disk, and may need a while to start again."""
_REMEMBERED_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class End:
    """How one attempt ended."""

    envelope: Envelope
    attempt: int
    value: Buffer
    """What belongs under a key of its own (``envelope.value_by_reference``); empty otherwise."""
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    at: float = field(default_factory=time.monotonic)


class Ends:
    """Stores ends and remembers the latest. ``_latest`` and ``_bytes`` are guarded by ``_lock``.

    Args:
        ledger: where they go.
        patience: how long to wait for Redis.
        worker: this worker's name.
        incarnation: this process.
        keep_seconds: how long results stay.
        ended: is told of each end that was stored.
    """

    def __init__(
        self,
        ledger: HoldingLedger,
        patience: Patience,
        *,
        worker: str,
        incarnation: str,
        keep_seconds: int,
        ended: Callable[[Envelope], None] = lambda _: None,
    ) -> None:
        self._ledger = ledger
        self._patience = patience
        self._worker = worker
        self._incarnation = incarnation
        self._keep_seconds = keep_seconds
        self._ended = ended
        self._lock = threading.Lock()
        self._latest: OrderedDict[tuple[str, int], End] = OrderedDict()
        self._bytes = 0

    def store(self, end: End) -> Ended | None:
        """Store an end, waiting for Redis as long as need be; ``None``: the call has moved on, and nothing was stored.

        Raises:
            RedisError: Redis refuses it for good, or the worker can't wait any longer.
        """
        ended = self._patience.repeat(lambda: self._store(end), f"end of call {end.envelope.id}")
        if ended is not None:
            self._ended(end.envelope)
            self._remember(end)
        return ended

    def store_again(self, end: End) -> None:
        """Store an end that Redis may have lost, unless it knows it or the call has moved on."""
        self._store(end)

    def uphold(self, call_id: str, attempt: int) -> bool:
        """Say that an attempt runs here, which Redis may have lost; whether it does, for all that Redis knows now."""
        return self._ledger.uphold(call_id, attempt, self._worker, self._incarnation)

    def latest(self) -> list[End]:
        """Return those of the last minute, the oldest first."""
        with self._lock:
            self._forget_old()
            return list(self._latest.values())

    def of(self, call_id: str, attempt: int) -> End | None:
        """Return how an attempt ended here within the last minute, if it did."""
        with self._lock:
            return self._latest.get((call_id, attempt))

    def _store(self, end: End) -> Ended | None:
        envelope, attempt = end.envelope, end.attempt
        if envelope.value_by_reference:
            self._ledger.store_value(envelope.id, attempt, end.value, self._keep_seconds)
        ended = self._ledger.finish(envelope, attempt=attempt, keep_seconds=self._keep_seconds, token=end.token)
        if ended is None and self.uphold(envelope.id, attempt):
            # Redis had lost that the call was placed here.
            return self._store(end)
        return ended

    def _remember(self, end: End) -> None:
        with self._lock:
            self._latest[end.envelope.id, end.attempt] = end
            self._bytes += _size(end)
            self._forget_old()

    def _forget_old(self) -> None:
        before = time.monotonic() - _REMEMBERED_SECONDS
        while self._latest:
            oldest = next(iter(self._latest.values()))
            if oldest.at > before and self._bytes <= _REMEMBERED_BYTES:
                return
            self._latest.popitem(last=False)
            self._bytes -= _size(oldest)


def _size(end: End) -> int:
    return len(end.value) + len(end.envelope.value or "")
