"""Ends calls as a cluster would, where only a Redis is there."""

import base64
from typing import Any

import cloudpickle
from redis import Redis

from readie.ledger.routing import Addressed, RoutingLedger
from readie.protocol import keys, task
from readie.protocol.announcement import Announcement
from readie.protocol.call import INLINE_LIMIT_BYTES, CallHeader, Placement
from readie.protocol.envelope import CallState, Envelope, Report
from readie.protocol.payload import Pickled, encode
from readie.protocol.reading import read

WORKER = "worker1@test"


class Cluster:
    """One worker without sandboxes, and a router that gives it everything."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.ledger = RoutingLedger(redis)

    def begin(self, call_id: str) -> CallHeader:
        """Place a queued call and begin it."""
        announcement = Announcement(
            name=WORKER,
            incarnation="1",
            pid=1,
            slots=10_000,
            flavor="default",
            python="3.11",
            runsc_version="test",
            generation=None,
            catalogue=None,
        )
        self.ledger.announce(announcement, 1000)
        item = self.redis.hget(keys.message(call_id), "submitted")
        assert isinstance(item, bytes)
        _, header = read(item)
        assert isinstance(header, CallHeader)
        attempt = int(self.redis.hget(keys.call(call_id), "attempt") or 0) + 1
        placement = Placement(worker=WORKER, incarnation="1", attempt=attempt, checkpoint_id=None, reason="by hand")
        placed = header.model_copy(update={"placement": placement})
        self.ledger.place_all("nobody", [Addressed(placed, task.encode(placed, task.encode_body(None), "test"), b"")])
        assert self.ledger.claim(placed) is not None
        return placed

    def finish(self, header: CallHeader, value: Any, keep_seconds: int = 600) -> None:
        """End a call that was begun."""
        assert header.placement is not None
        pickled = b"".join(encode([Pickled(cloudpickle.dumps(value)), Pickled(b"{}")]))
        inline = len(pickled) <= INLINE_LIMIT_BYTES
        if not inline:
            self.ledger.store_value(header.id, header.placement.attempt, pickled, keep_seconds)
        envelope = Envelope(
            id=header.id,
            state=CallState.DONE,
            value=base64.b64encode(pickled).decode() if inline else None,
            value_bytes=len(pickled),
            value_by_reference=not inline,
            report=Report(attempt=header.placement.attempt),
        )
        attempt = header.placement.attempt
        assert self.ledger.finish(envelope, attempt=attempt, keep_seconds=keep_seconds) is not None
