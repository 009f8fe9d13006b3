"""What cancelling does to a call's record, at each moment of its life."""

from __future__ import annotations

import pytest
from redis import Redis

from readie.ledger import Cancelled, Ended
from readie.ledger.result import decode_result
from readie.ledger.routing import Addressed, Parking, RoutingLedger
from readie.protocol import keys
from readie.protocol.announcement import Announcement
from readie.protocol.call import CallHeader, Placement
from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import CallState, Envelope, Failure, Report

WORKER = "worker1@test"
PLACEMENT = Placement(worker=WORKER, incarnation="first", attempt=1, checkpoint_id=None, reason="test")
HEADER = CallHeader(
    protocol=1,
    id="a",
    name="f",
    python="3.11",
    payload_bytes=1,
    payload_by_reference=False,
    placement=PLACEMENT,
)


@pytest.fixture
def ledger(redis: Redis) -> RoutingLedger:
    """A ledger with one call, ``a``, and one worker with one slot."""
    ledger = RoutingLedger(redis)
    announcement = Announcement(
        name=WORKER,
        incarnation="first",
        pid=1,
        slots=1,
        flavor="default",
        python="3.11",
        runsc_version="1",
        generation=None,
        catalogue=None,
    )
    ledger.announce(announcement, lease_seconds=10)
    ledger.submit("a", "message", "client", [b"pay", b"load"])
    return ledger


def place(ledger: RoutingLedger) -> None:
    ledger.place_all("router", [Addressed(HEADER, "readdressed", b"")])
    assert ledger.held_calls(WORKER) == ["a"]


def begin(ledger: RoutingLedger) -> None:
    place(ledger)
    assert ledger.claim(HEADER) is not None


def finish(ledger: RoutingLedger, state: CallState, failure: Failure | None = None) -> Ended | None:
    envelope = Envelope(id="a", state=state, failure=failure, report=Report(worker=WORKER, phases={"execute": 1.0}))
    return ledger.finish(envelope, attempt=1, keep_seconds=60)


def stored(redis: Redis) -> Envelope:
    return decode_result(redis.get(keys.result("a")))


def test_a_queued_call_ends_at_once_and_is_never_placed(ledger: RoutingLedger, redis: Redis) -> None:
    with redis.pubsub() as replies:
        replies.subscribe(keys.replies("client"))
        assert replies.get_message(timeout=10)["type"] == "subscribe"
        assert ledger.cancel("a") is Cancelled.CANCELLED
        told = decode_result(replies.get_message(timeout=10)["data"])

    assert told == stored(redis)
    assert told.state is CallState.CANCELLED
    assert told.failure is not None
    assert told.failure.code is ErrorCode.CANCELLED
    assert 0 < told.submitted_at <= told.ended_at
    assert redis.exists(keys.payload("a")) == 0
    assert redis.zcard(keys.PENDING) == 0
    ledger.place_all("router", [Addressed(HEADER, "readdressed", b"")])
    assert ledger.held_calls(WORKER) == []


def test_a_waiting_call_waits_no_longer(ledger: RoutingLedger, redis: Redis) -> None:
    ledger.park_all("router", "0", 1000, [Parking("a", b"", "group", 0, "all full")])
    assert redis.zcard(keys.WAITING) == 1
    assert ledger.cancel("a") is Cancelled.CANCELLED

    assert redis.zcard(keys.WAITING) == 0
    assert redis.exists(keys.waiting_group("group")) == 0


def test_a_placed_call_gives_its_slot_back_and_can_not_begin(ledger: RoutingLedger) -> None:
    place(ledger)
    assert ledger.cancel("a") is Cancelled.CANCELLED

    assert ledger.held_calls(WORKER) == []
    assert ledger.claim(HEADER) is None


def test_the_worker_of_a_running_call_is_told(ledger: RoutingLedger, redis: Redis) -> None:
    begin(ledger)
    with redis.pubsub() as control:
        control.subscribe(keys.worker_control("first"))
        assert control.get_message(timeout=10)["type"] == "subscribe"
        assert ledger.cancel("a") is Cancelled.STOPPING
        assert control.get_message(timeout=10)["data"] == b"a"

    assert ledger.state("a")[0] is CallState.RUNNING
    assert ledger.cancelled_among(["a", "other"]) == ["a"]
    assert redis.exists(keys.result("a")) == 0


@pytest.mark.parametrize(
    ("state", "failure"),
    [
        (CallState.DONE, None),
        (CallState.FAILED, Failure(code=ErrorCode.REMOTE, message="raised")),
        (CallState.FAILED, Failure(code=ErrorCode.WORKER_LOST, message="lost")),
    ],
)
def test_a_running_call_that_was_cancelled_ends_so_whatever_it_says(
    ledger: RoutingLedger, redis: Redis, state: CallState, failure: Failure | None
) -> None:
    begin(ledger)
    ledger.cancel("a")
    ended = finish(ledger, state, failure)

    assert ended is not None
    assert ended.state is CallState.CANCELLED
    assert ledger.state("a")[0] is CallState.CANCELLED
    assert stored(redis).state is CallState.CANCELLED
    assert ledger.held_calls(WORKER) == []
    assert set(redis.hkeys(keys.call("a"))).isdisjoint({b"cancel_before", b"cancel_after"})


def test_the_workers_own_report_of_a_cancelled_call_is_kept(ledger: RoutingLedger, redis: Redis) -> None:
    begin(ledger)
    ledger.cancel("a")
    finish(ledger, CallState.CANCELLED, Failure(code=ErrorCode.CANCELLED, message="the call was cancelled"))

    assert stored(redis).report.phases == {"execute": 1.0}


def test_the_value_of_a_call_that_was_cancelled_too_late_to_stop_is_not_kept(
    ledger: RoutingLedger, redis: Redis
) -> None:
    begin(ledger)
    ledger.store_value("a", 1, b"value", 60)
    ledger.cancel("a")
    ledger.finish(Envelope(id="a", state=CallState.DONE, value_by_reference=True), attempt=1, keep_seconds=60)

    assert redis.exists(keys.value("a", 1)) == 0


def test_what_has_ended_or_never_was_can_not_be_cancelled(ledger: RoutingLedger, redis: Redis) -> None:
    begin(ledger)
    finish(ledger, CallState.DONE)
    before = redis.get(keys.result("a"))

    assert ledger.cancel("a") is Cancelled.ENDED
    assert ledger.cancel("nowhere") is Cancelled.ENDED
    assert redis.get(keys.result("a")) == before
    assert redis.exists(keys.call("nowhere"), keys.result("nowhere")) == 0


def test_a_running_call_can_be_left_alone(ledger: RoutingLedger) -> None:
    begin(ledger)
    assert ledger.cancel("a", stop_running=False) is Cancelled.RUNNING
    assert ledger.cancelled_among(["a"]) == []
    ended = finish(ledger, CallState.DONE)
    assert ended is not None
    assert ended.state is CallState.DONE


def test_a_result_that_celery_wrote_before_the_end_is_not_taken_for_one(ledger: RoutingLedger, redis: Redis) -> None:
    redis.set(keys.result("a"), b'{"status": "REVOKED"}')
    watch = ledger.watch("a", "other")

    assert (watch.state, watch.result) == (CallState.QUEUED, None)
    begin(ledger)
    finish(ledger, CallState.DONE)
    assert redis.hget(keys.call("a"), "reply") == b"client other"
    assert ledger.watch("a", "other").result == redis.get(keys.result("a"))
