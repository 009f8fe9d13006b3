"""What a call costs Redis: commands, and processor time, from its submission to its end."""

from __future__ import annotations

import uuid
from typing import NamedTuple

from redis import Redis

from readie.ledger.routing import Addressed, Placed, RoutingLedger
from readie.protocol import keys, task
from readie.protocol.announcement import Announcement
from readie.protocol.call import CallHeader, ImportHints, Placement
from readie.protocol.envelope import CallState, Envelope

_AT_ONCE = 64
"""As many as a router takes at once."""
_PAYLOAD = b"x" * 1000


class RedisLoad(NamedTuple):
    """Of one call, on average."""

    sent_commands: float
    """What clients, routers and workers send; a script is one."""
    commands: float
    """With those that the scripts run."""
    cpu_seconds: float
    """Of Redis' only thread that runs commands."""


def measure(redis: Redis, calls: int) -> RedisLoad:
    """Bring calls through a ledger, with the results of their records, on a Redis that does nothing else."""
    ledger = RoutingLedger(redis)
    worker = Announcement(
        name="worker@load", incarnation="1", pid=1, slots=1000, flavor="default", python="3.11", runsc_version="",
        generation=None, catalogue=None,
    )  # fmt: skip
    ledger.announce(worker, lease_seconds=1000)
    _run(ledger, worker, _AT_ONCE)
    commands, cpu = _commands(redis), _cpu_seconds(redis)
    sent = _run(ledger, worker, calls)
    return RedisLoad(sent / calls, (_commands(redis) - commands) / calls, (_cpu_seconds(redis) - cpu) / calls)


def _run(ledger: RoutingLedger, worker: Announcement, count: int) -> int:
    """Return how many commands were sent."""
    sent = 0
    for _ in range(count // _AT_ONCE):
        headers = [_header() for _ in range(_AT_ONCE)]
        for header in headers:
            ledger.submit(header.id, task.encode(header, task.encode_body(_PAYLOAD), "load"), "client")
        items = ledger.take("router", _AT_ONCE)
        addressed = [
            Addressed(header, task.encode(header, task.encode_body(_PAYLOAD), "load"), item)
            for header, item in zip(headers, items, strict=True)
        ]
        for outcome in ledger.place_all("router", addressed):
            if not isinstance(outcome, Placed):
                raise TypeError(f"a call was not placed: {outcome}")
        for header in headers:
            # As kombu takes them.
            ledger.redis.brpop([keys.worker_queue(worker.name)], 1)
            ledger.claim(header)
            ledger.finish(Envelope(id=header.id, state=CallState.DONE, value="x" * 100), attempt=1, keep_seconds=60)
        sent += 4 * len(headers) + 1 + len(headers)
    return sent


def _header() -> CallHeader:
    return CallHeader(
        protocol=1,
        id=uuid.uuid4().hex,
        name="module.function",
        python="3.11",
        hints=ImportHints(imports=("pandas", "sklearn.svm.LinearSVC")),
        payload_bytes=len(_PAYLOAD),
        payload_by_reference=False,
        placement=Placement(
            worker="worker@load", incarnation="1", attempt=1, checkpoint_id="checkpoint_3", reason="lowest"
        ),
    )


def _commands(redis: Redis) -> int:
    return sum(found["calls"] for found in redis.info("commandstats").values())


def _cpu_seconds(redis: Redis) -> float:
    found = redis.info("cpu")
    return float(found["used_cpu_user_main_thread"]) + float(found["used_cpu_sys_main_thread"])
