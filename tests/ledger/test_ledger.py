"""What the ledger lets happen, and what it refuses. The state of a call is changed nowhere else."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from celery import Celery
from celery.result import AsyncResult
from redis import Redis

from readie.ledger import Ended, NoRoom, Placed, Settled
from readie.ledger.result import decode_result
from readie.ledger.routing import Addressed, Broken, Parking, RoutingLedger
from readie.protocol import keys
from readie.protocol.announcement import Announcement
from readie.protocol.call import CallHeader, Placement
from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import CallState, Envelope, Failure

WORKER = "worker1@test"


@pytest.fixture
def ledger(redis: Redis) -> RoutingLedger:
    return RoutingLedger(redis)


def announce(ledger: RoutingLedger, incarnation: str = "first", slots: int = 2, *, draining: bool = False) -> bool:
    announcement = Announcement(
        name=WORKER,
        incarnation=incarnation,
        pid=1,
        slots=slots,
        draining=draining,
        flavor="default",
        python="3.11",
        runsc_version="1",
        generation=None,
        catalogue=None,
    )
    return ledger.announce(announcement, lease_seconds=10)


def header(call_id: str, attempt: int = 1, incarnation: str = "first", *, by_reference: bool = False) -> CallHeader:
    placement = Placement(worker=WORKER, incarnation=incarnation, attempt=attempt, checkpoint_id=None, reason="test")
    return CallHeader(
        protocol=1,
        id=call_id,
        name="f",
        python="3.11",
        payload_bytes=1,
        payload_by_reference=by_reference,
        placement=placement,
    )


def submit(ledger: RoutingLedger, call_id: str) -> CallHeader:
    ledger.submit(call_id, f"message of {call_id}", "client")
    return header(call_id)


def place(ledger: RoutingLedger, call: CallHeader) -> Placed | NoRoom | Settled | Broken:
    (outcome,) = ledger.place_all("router", [Addressed(call, "readdressed", b"")])
    return outcome


def park(ledger: RoutingLedger, call_id: str, capacity: str, waits_for: str = "all full") -> None:
    assert ledger.park_all("router", capacity, 1000, [Parking(call_id, b"", "group", 0, waits_for)]) == [True]


def end(ledger: RoutingLedger, call_id: str, attempt: int = 1, state: CallState = CallState.DONE) -> Ended | None:
    return ledger.finish(Envelope(id=call_id, state=state), attempt=attempt, keep_seconds=60)


def test_a_call_goes_from_queued_to_done_and_leaves_only_what_expires(ledger: RoutingLedger, redis: Redis) -> None:
    announce(ledger)
    ledger.submit("a", "message", "client", [b"pay", b"load"])
    assert ledger.state("a") == (CallState.QUEUED, "")
    assert redis.rpop(keys.SUBMIT_QUEUE) == b"message"
    call = header("a", by_reference=True)
    assert isinstance(place(ledger, call), Placed)
    assert redis.rpop(keys.worker_queue(WORKER)) == b"readdressed"
    claimed = ledger.claim(call)
    assert claimed is not None
    claim, payload = claimed
    assert payload == b"payload"
    assert claim.submitted_at <= claim.placed_at <= claim.started_at
    ended = end(ledger, "a")
    assert ended is not None
    assert ended.at >= claim.started_at
    assert ledger.state("a") == (CallState.DONE, "")
    left = {key.decode() for key in redis.keys("*")}
    assert left == {keys.call("a"), keys.result("a"), keys.worker(WORKER), keys.WORKERS, keys.CAPACITY}
    assert 0 < redis.ttl(keys.call("a")) <= 60
    assert 0 < redis.ttl(keys.result("a")) <= 60


def test_a_submission_sent_twice_is_one_call(ledger: RoutingLedger, redis: Redis) -> None:
    first = ledger.submit("a", "message", "client")
    assert ledger.submit("a", "message", "client") == first
    assert redis.llen(keys.SUBMIT_QUEUE) == 1


def test_an_attempt_is_begun_once_however_often_its_message_arrives(ledger: RoutingLedger) -> None:
    announce(ledger)
    call = submit(ledger, "a")
    place(ledger, call)
    with ThreadPoolExecutor(8) as threads:
        claims = list(threads.map(lambda _: ledger.claim(call), range(40)))
    assert sum(claim is not None for claim in claims) == 1


def test_only_the_current_attempt_on_its_own_worker_process_can_begin(ledger: RoutingLedger) -> None:
    announce(ledger)
    place(ledger, submit(ledger, "a"))
    assert ledger.claim(header("a", attempt=2)) is None
    assert ledger.claim(header("a", incarnation="forged")) is None
    assert ledger.claim(header("never submitted".replace(" ", "-"))) is None
    assert ledger.claim(header("a")) is not None


def test_a_call_ends_once(ledger: RoutingLedger, redis: Redis) -> None:
    announce(ledger)
    call = submit(ledger, "a")
    place(ledger, call)
    ledger.claim(call)
    with ThreadPoolExecutor(8) as threads:
        ends = list(threads.map(lambda _: end(ledger, "a"), range(40)))
    assert sum(ended is not None for ended in ends) == 1


def test_a_stale_attempt_can_not_end_a_call_and_its_value_is_removed(ledger: RoutingLedger, redis: Redis) -> None:
    announce(ledger)
    place(ledger, submit(ledger, "a"))
    assert ledger.requeue("a", WORKER, "first") == "requeued"
    place(ledger, header("a", attempt=2))
    ledger.store_value("a", 1, b"stale", 60)
    envelope = Envelope(id="a", state=CallState.DONE, value_bytes=5, value_by_reference=True)
    assert ledger.finish(envelope, attempt=1, keep_seconds=60) is None
    assert not redis.exists(keys.value("a", 1))
    assert ledger.state("a")[0] is CallState.PLACED


def test_slots_are_given_once_and_freed_by_the_end(ledger: RoutingLedger) -> None:
    announce(ledger, slots=3)
    calls = [submit(ledger, f"c{number}") for number in range(20)]
    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(lambda call: place(ledger, call), calls))
    placed = [call for call, outcome in zip(calls, outcomes, strict=True) if isinstance(outcome, Placed)]
    assert len(placed) == 3
    assert {outcome for outcome in outcomes if not isinstance(outcome, Placed)} == {NoRoom("full")}
    end(ledger, placed[0].id)
    waiting = next(call for call in calls if call not in placed)
    assert isinstance(place(ledger, waiting), Placed)


def test_a_draining_worker_gets_nothing_but_ends_what_it_has(ledger: RoutingLedger) -> None:
    announce(ledger)
    call = submit(ledger, "a")
    place(ledger, call)
    announce(ledger, draining=True)
    assert place(ledger, submit(ledger, "b")) == NoRoom("full")
    assert ledger.claim(call) is not None
    assert end(ledger, "a") is not None


def test_a_restarted_or_vanished_worker_gets_nothing(ledger: RoutingLedger) -> None:
    call = submit(ledger, "a")
    assert place(ledger, call) == NoRoom("gone")
    announce(ledger, incarnation="second")
    assert place(ledger, call) == NoRoom("gone")


def test_a_placed_call_is_given_back_and_its_old_message_is_worth_nothing(ledger: RoutingLedger, redis: Redis) -> None:
    announce(ledger)
    call = submit(ledger, "a")
    redis.delete(keys.SUBMIT_QUEUE)
    place(ledger, call)
    assert ledger.requeue("a", WORKER, "first") == "requeued"
    assert redis.lrange(keys.SUBMIT_QUEUE, 0, -1) == [b"message of a"]
    assert ledger.held_calls(WORKER) == []
    assert ledger.claim(call) is None
    assert place(ledger, call) == Settled(1)
    assert isinstance(place(ledger, header("a", attempt=2)), Placed)


def test_a_begun_call_is_not_given_back(ledger: RoutingLedger) -> None:
    announce(ledger)
    call = submit(ledger, "a")
    place(ledger, call)
    ledger.claim(call)
    assert ledger.requeue("a", WORKER, "first") == "running"
    assert end(ledger, "a") is not None


def test_a_parked_call_is_woken_by_freed_capacity_and_not_missed(ledger: RoutingLedger, redis: Redis) -> None:
    announce(ledger, slots=1)
    place(ledger, submit(ledger, "running"))
    submit(ledger, "waiting")
    redis.delete(keys.SUBMIT_QUEUE)
    seen = ledger.look().capacity
    end(ledger, "running")
    assert redis.llen(keys.SUBMIT_QUEUE) == 0
    park(ledger, "waiting", seen)
    assert redis.lrange(keys.SUBMIT_QUEUE, 0, -1) == [keys.WAKE.encode()], "capacity was freed since it was looked at"
    place(ledger, submit(ledger, "other"))
    redis.delete(keys.SUBMIT_QUEUE)
    park(ledger, "waiting", ledger.look().capacity)
    assert redis.llen(keys.SUBMIT_QUEUE) == 0
    assert ledger.state("waiting") == (CallState.QUEUED, "all full")
    end(ledger, "other")
    assert redis.lrange(keys.SUBMIT_QUEUE, 0, -1) == [keys.WAKE.encode()]


def test_a_new_worker_wakes_waiting_calls_and_its_renewals_do_not(ledger: RoutingLedger, redis: Redis) -> None:
    submit(ledger, "a")
    redis.delete(keys.SUBMIT_QUEUE)
    park(ledger, "a", ledger.look().capacity)
    assert announce(ledger)
    assert redis.lrange(keys.SUBMIT_QUEUE, 0, -1) == [keys.WAKE.encode()]
    assert not announce(ledger)
    assert redis.llen(keys.SUBMIT_QUEUE) == 1


def test_every_watcher_hears_of_the_end_and_a_late_one_reads_it(ledger: RoutingLedger, redis: Redis) -> None:
    submit(ledger, "a")
    heard: list[bytes] = []
    subscribed = threading.Barrier(2)

    def listen() -> None:
        with redis.pubsub() as pubsub:
            pubsub.subscribe(keys.replies("client"), keys.replies("second"))
            while pubsub.subscribed and len(heard) < 2:
                message = pubsub.get_message(timeout=10)
                assert message, "nothing was heard"
                if message["type"] == "subscribe" and message["data"] == 2:
                    subscribed.wait(10)
                elif message["type"] == "message":
                    heard.append(message["channel"])

    listener = threading.Thread(target=listen)
    listener.start()
    subscribed.wait(10)
    assert ledger.watch("a", "second").state is CallState.QUEUED
    ledger.watch("a", "second")
    end(ledger, "a", attempt=0)
    listener.join(10)
    assert sorted(heard) == [keys.replies("client").encode(), keys.replies("second").encode()]
    late = ledger.watch("a", "third")
    assert late.result is not None
    assert decode_result(late.result).state is CallState.DONE
    assert ledger.watch("unknown", "client").state is None


def test_celery_reads_the_same_result(ledger: RoutingLedger, redis_url: str) -> None:
    app = Celery("reader", backend=redis_url)
    submit(ledger, "good")
    submit(ledger, "bad")
    end(ledger, "good", attempt=0)
    failure = Failure(code=ErrorCode.REMOTE, type="builtins.KeyError", message="name", traceback="Traceback ...")
    ledger.finish(Envelope(id="bad", state=CallState.FAILED, failure=failure), attempt=0, keep_seconds=60)
    good, bad = AsyncResult("good", app=app), AsyncResult("bad", app=app)
    assert good.state == "SUCCESS"
    assert good.get(timeout=5)["id"] == "good"
    assert bad.state == "FAILURE"
    assert bad.traceback == "Traceback ..."
    assert isinstance(bad.result, KeyError)


def test_the_end_time_is_in_the_stored_result_whatever_the_text_contains(ledger: RoutingLedger, redis: Redis) -> None:
    submit(ledger, "a")
    failure = Failure(code=ErrorCode.REMOTE, message='"ended_at": %1 %% {} \\ \u2028', type="m.E")
    ended = ledger.finish(Envelope(id="a", state=CallState.FAILED, failure=failure), attempt=0, keep_seconds=60)
    assert ended is not None
    stored = redis.get(keys.result("a"))
    assert json.loads(stored)["ended_at"] == pytest.approx(ended.at)
    assert decode_result(stored).failure == failure
