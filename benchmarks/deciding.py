"""How the cost of one decision and of one look at the workers grows with their number, in a real router's code."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from redis import Redis

from readie.ledger import Ledger
from readie.ledger.routing import RoutingLedger
from readie.protocol.announcement import Announcement
from readie.protocol.call import CallHeader
from readie.protocol.catalogue import Catalogue
from router.fleet import Fleet
from router.needs import Needs
from router.placement import Chosen, choose, soonest

from .redis_load import cpu_seconds

_LOOKS = 5
_READY_OF_A_WORKER = 8
_SLOTS = 16


class Deciding(NamedTuple):
    """Processor seconds for one call, seconds for one look."""

    workers: int
    choose_seconds: float
    """By the router's own code, the arranging of the workers after each look included."""
    every_worker_seconds: float
    """By comparing every worker, as a reference."""
    look_seconds: float
    """At all workers in a real Redis, read and made ready to choose from."""
    look_redis_seconds: float
    """For which it keeps Redis from all else."""


def measure(redis: Redis, catalogue: Catalogue, headers: Sequence[CallHeader], count: int, calls: int) -> Deciding:
    """Measure with ``count`` announced workers; leaves them in ``redis``."""
    chance = random.Random(count)
    ids = [checkpoint.id for checkpoint in catalogue.checkpoints]
    ledger = Ledger(redis)
    ledger.publish_catalogue(catalogue)
    for number in range(count):
        announcement = Announcement(
            name=f"worker{number:05d}@simulated",
            incarnation="1",
            pid=1,
            slots=_SLOTS,
            flavor="default",
            python=headers[0].python,
            runsc_version="",
            generation=catalogue.generation,
            catalogue=catalogue.digest(),
            checkpoints=tuple(ids),
        )
        ready = {name: chance.randrange(1, 3) for name in chance.sample(ids, _READY_OF_A_WORKER)}
        ledger.announce(announcement, lease_seconds=100_000, ready=ready)
    fleet = Fleet(RoutingLedger(redis), "router", max_age_seconds=0.05)
    looks = []
    redis_before = cpu_seconds(redis)
    for _ in range(_LOOKS):
        began = time.perf_counter()
        fleet.look()
        looks.append(time.perf_counter() - began)
    look_redis = (cpu_seconds(redis) - redis_before) / _LOOKS
    few = headers[: max(3, min(len(headers), 20_000 // count))]
    began = time.process_time()
    for header in few:
        free = [worker for worker in fleet.candidates.workers if worker.has_room(Needs.of(header))]
        soonest(header, free)
    every_worker = (time.process_time() - began) / len(few)
    began = time.process_time()
    for number in range(calls):
        decision = choose(headers[number % len(headers)], fleet.candidates)
        if isinstance(decision, Chosen):
            decision.worker.take(None, decision.checkpoint_id)
    return Deciding(count, (time.process_time() - began) / calls, every_worker, median(looks), look_redis)
