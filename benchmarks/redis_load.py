"""What a call costs Redis: commands, and processor time, from its submission to its end."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
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
_LEASE_SECONDS = 1000
_READY: Mapping[str | None, int] = {f"checkpoint_{number}": 2 for number in range(8)}
_TAKEN = {**_READY, "checkpoint_3": 1}


class RedisLoad(NamedTuple):
    """Of one call, on average."""

    sent_commands: float
    """What clients, routers and workers send; a script is one."""
    commands: float
    """With those that the scripts run."""
    cpu_seconds: float
    """Of Redis' only thread that runs commands."""
    renewal_cpu_seconds: float
    """The same for one renewal of a worker's lease, whatever the calls."""


def measure(redis: Redis, calls: int) -> RedisLoad:
    """Bring calls through a ledger, each of which finds a ready sandbox, on a Redis that does nothing else."""
    ledger = RoutingLedger(redis)
    worker = Announcement(
        name="worker@load", incarnation="1", pid=1, slots=1000, flavor="default", python="3.11", runsc_version="",
        generation=None, catalogue=None,
    )  # fmt: skip
    ledger.announce(worker, _LEASE_SECONDS, _READY)
    _run(ledger, worker, _AT_ONCE)
    commands, cpu = _commands(redis), cpu_seconds(redis)
    sent = _run(ledger, worker, calls)
    commands, cpu_after = _commands(redis) - commands, cpu_seconds(redis)
    for _ in range(calls):
        ledger.announce(worker, _LEASE_SECONDS, _READY)
    renewals = cpu_seconds(redis) - cpu_after
    return RedisLoad(sent / calls, commands / calls, (cpu_after - cpu) / calls, renewals / calls)


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
            # It took a ready sandbox, and another one was made.
            for ready in (_TAKEN, _READY):
                ledger.tell_ready(worker.name, worker.incarnation, ready)
            ledger.finish(Envelope(id=header.id, state=CallState.DONE, value="x" * 100), attempt=1, keep_seconds=60)
        sent += 7 * len(headers) + 1
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


def cpu_seconds(redis: Redis) -> float:
    """Return the processor time of the only thread that runs commands."""
    found = redis.info("cpu")
    return float(found["used_cpu_user_main_thread"]) + float(found["used_cpu_sys_main_thread"])
