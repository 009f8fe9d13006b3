"""A worker tells which ready sandboxes it has."""

import json

from redis import Redis

from readie.ledger.routing import RoutingLedger
from readie.protocol import keys
from readie.protocol.announcement import Announcement

WORKER = Announcement(
    name="worker1@test",
    incarnation="first",
    pid=1,
    slots=2,
    flavor="default",
    python="3.11",
    runsc_version="1",
    generation=None,
    catalogue=None,
)


def ready(redis: Redis) -> object:
    """Return what is told, as a router reads it: counts by checkpoint, the cold start's under no name."""
    seen = RoutingLedger(redis).look().workers[WORKER.name.encode()]
    return json.loads(seen.ready)


def test_ready_sandboxes_are_told_with_the_lease_and_between_its_renewals(redis: Redis) -> None:
    ledger = RoutingLedger(redis)
    ledger.announce(WORKER, 1000)
    assert ready(redis) == {}
    ledger.announce(WORKER, 1000, {"checkpoint_1": 2, None: 1})
    assert ready(redis) == {"checkpoint_1": 2, "": 1}
    ledger.tell_ready(WORKER.name, WORKER.incarnation, {"checkpoint_1": 1})
    assert ready(redis) == {"checkpoint_1": 1}


def test_other_ready_sandboxes_wake_no_waiting_call(redis: Redis) -> None:
    ledger = RoutingLedger(redis)
    assert ledger.announce(WORKER, 1000, {})
    capacity = ledger.look().capacity
    assert not ledger.announce(WORKER, 1000, {"checkpoint_1": 2})
    ledger.tell_ready(WORKER.name, WORKER.incarnation, {"checkpoint_1": 1})
    assert ledger.look().capacity == capacity


def test_a_notice_neither_renews_a_lease_nor_makes_an_entry(redis: Redis) -> None:
    ledger = RoutingLedger(redis)
    ledger.tell_ready(WORKER.name, WORKER.incarnation, {"checkpoint_1": 1})
    assert not redis.exists(keys.worker(WORKER.name))
    ledger.announce(WORKER, 1000)
    redis.expire(keys.worker(WORKER.name), 500)
    ledger.tell_ready(WORKER.name, WORKER.incarnation, {"checkpoint_1": 1})
    assert redis.ttl(keys.worker(WORKER.name)) <= 500


def test_a_former_process_tells_nothing_about_its_successor(redis: Redis) -> None:
    ledger = RoutingLedger(redis)
    ledger.announce(WORKER.model_copy(update={"incarnation": "second"}), 1000, {"checkpoint_1": 2})
    ledger.tell_ready(WORKER.name, WORKER.incarnation, {"checkpoint_1": 9})
    assert ready(redis) == {"checkpoint_1": 2}
