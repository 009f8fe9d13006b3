"""What a router finds of the dead and of lost messages, and what becomes of it."""

import threading
from collections.abc import Callable, Sequence

import pytest
from redis import Redis
from router_cluster import Client, Worker, eventually, header, message, uncollected

from readie.ledger.sessions import SessionLedger
from readie.protocol import keys
from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import CallState
from router.recovery import Recovery

NewWorker = Callable[..., Worker]
LONG_AGO = 1_000_000_000.0


@pytest.fixture
def recovery(redis: Redis) -> Recovery:
    return Recovery(SessionLedger(redis), keep_seconds=60, metrics=uncollected())


def queued(redis: Redis) -> list[bytes]:
    """Return the submit queue, next item first."""
    items = redis.lrange(keys.SUBMIT_QUEUE, 0, -1)
    assert isinstance(items, list)
    return items[::-1]


def test_a_lost_workers_queued_call_goes_back_to_the_front_of_the_queue(
    client: Client, new_worker: NewWorker, recovery: Recovery, redis: Redis
) -> None:
    worker = new_worker().announce()
    call = worker.give(header("c"))
    client.submit(header("younger"))
    worker.vanish()
    recovery.sweep_workers()
    assert queued(redis) == [message(header("c")).encode(), message(header("younger")).encode()]
    assert client.field("c", "state") == "queued"
    assert worker.ledger.claim(call) is None


def test_a_call_that_a_lost_worker_had_begun_ends_as_lost(
    client: Client, new_worker: NewWorker, recovery: Recovery, redis: Redis
) -> None:
    worker = new_worker().announce()
    worker.give(header("c"))
    call = worker.begin()
    worker.vanish()
    recovery.sweep_workers()
    end = client.end("c")
    assert end.state is CallState.FAILED
    assert end.failure is not None
    assert end.failure.code is ErrorCode.WORKER_LOST
    assert worker.name in end.failure.message
    assert end.report.worker == worker.name
    assert not worker.finish(call)
    assert queued(redis) == []


def test_nothing_is_left_of_a_lost_worker(new_worker: NewWorker, recovery: Recovery, redis: Redis) -> None:
    worker = new_worker().announce()
    worker.give(header("begun"))
    worker.begin()
    worker.give(header("queued"))
    worker.vanish()
    recovery.sweep_workers()
    assert redis.zcard(keys.WORKERS) == 0
    assert redis.exists(worker.queue, keys.worker_calls(worker.name), keys.worker(worker.name)) == 0


def test_a_withdrawn_workers_calls_go_back(client: Client, new_worker: NewWorker, recovery: Recovery) -> None:
    worker = new_worker().announce()
    worker.give(header("c"))
    worker.ledger.withdraw(worker.name)
    recovery.sweep_workers()
    assert client.field("c", "state") == "queued"


def test_a_living_worker_keeps_its_calls_and_its_queue(
    client: Client, new_worker: NewWorker, recovery: Recovery
) -> None:
    worker = new_worker().announce()
    worker.give(header("begun"))
    call = worker.begin()
    worker.give(header("queued"))
    for _ in range(2):
        recovery.sweep_workers()
        recovery.sweep_never_begun()
    assert worker.queued() == 1
    assert client.field("queued", "state") == "placed"
    assert worker.finish(call)


def test_a_restarted_worker_keeps_its_new_calls_only(client: Client, new_worker: NewWorker, recovery: Recovery) -> None:
    worker = new_worker(slots=8).announce()
    recovery.sweep_workers()
    worker.give(header("old-begun"))
    worker.begin()
    worker.give(header("old-queued"))
    worker.receive()
    worker.restart()
    worker.give(header("new-begun"))
    new = worker.begin()
    worker.give(header("new-queued"))
    recovery.sweep_workers()
    failure = client.end("old-begun").failure
    assert failure is not None
    assert failure.code is ErrorCode.WORKER_LOST
    assert client.field("old-queued", "state") == "queued"
    assert client.field("new-queued", "state") == "placed"
    assert worker.finish(new)


def test_a_worker_that_restarts_while_it_is_looked_at_keeps_its_new_calls(
    client: Client, new_worker: NewWorker, redis: Redis
) -> None:
    worker = new_worker().announce()
    worker.give(header("old"))
    worker.receive()

    class RestartsMeanwhile(SessionLedger):
        """Its worker restarts, and begins a call, just after the workers were listed."""

        def incarnations(self, workers: Sequence[str] | None = None) -> dict[str, str | None]:
            seen = super().incarnations(workers)
            if workers is None:
                worker.restart()
                worker.give(header("new"))
                worker.begin()
            return seen

    Recovery(RestartsMeanwhile(redis), keep_seconds=60, metrics=uncollected()).sweep_workers()
    assert client.field("old", "state") == "queued"
    assert client.field("new", "state") == "running"


def test_a_slot_freed_by_recovery_wakes_a_waiting_call(
    client: Client, new_worker: NewWorker, recovery: Recovery, redis: Redis
) -> None:
    worker = new_worker(slots=1).announce()
    worker.give(header("old"))
    client.ledger.submit("waits", message(header("waits")), "client")
    redis.delete(keys.SUBMIT_QUEUE)
    client.park("waits")
    worker.restart()
    redis.delete(keys.SUBMIT_QUEUE)
    capacity = redis.get(keys.CAPACITY)
    recovery.sweep_workers()
    assert keys.WAKE.encode() in queued(redis)
    assert redis.get(keys.CAPACITY) != capacity


def test_a_recovery_that_comes_late_takes_nothing_from_the_workers_next_process(
    client: Client, new_worker: NewWorker, recovery: Recovery
) -> None:
    worker = new_worker().announce()
    old = worker.give(header("c"))
    worker.restart()
    recovery.sweep_workers()
    worker.place(header("c"), attempt=2)
    assert old.placement is not None
    assert client.ledger.requeue("c", worker.name, old.placement.incarnation) == "placed"
    assert client.ledger.held_calls(worker.name) == ["c"]


def test_many_recoveries_at_once_take_each_call_back_once(client: Client, new_worker: NewWorker, redis: Redis) -> None:
    worker = new_worker(slots=300).announce()
    for number in range(100):
        worker.give(header(f"begun{number}"))
        worker.begin()
    for number in range(200):
        worker.give(header(f"queued{number}"))
    worker.vanish()
    sweeps = [
        threading.Thread(target=Recovery(SessionLedger(redis), keep_seconds=60, metrics=uncollected()).sweep_workers)
        for _ in range(4)
    ]
    for sweep in sweeps:
        sweep.start()
    for sweep in sweeps:
        sweep.join()
    assert sorted(queued(redis)) == sorted(message(header(f"queued{number}")).encode() for number in range(200))
    assert all(client.end(f"begun{number}").state is CallState.FAILED for number in range(100))
    assert redis.zcard(keys.WORKERS) == 0


def test_a_call_whose_message_was_lost_at_a_living_worker_goes_back(
    client: Client, new_worker: NewWorker, recovery: Recovery, redis: Redis
) -> None:
    worker = new_worker(slots=3).announce()
    lost = worker.give(header("lost"))
    worker.receive()
    worker.give(header("begun"))
    begun = worker.begin()
    worker.give(header("young"))
    for call_id in ("lost", "begun"):
        redis.zadd(keys.worker_calls(worker.name), {call_id: LONG_AGO})
    recovery.sweep_never_begun()
    assert queued(redis) == [message(header("lost")).encode()]
    assert client.field("young", "state") == "placed"
    assert worker.ledger.claim(lost) is None
    assert worker.finish(begun)


def test_a_call_that_no_worker_ever_begins_ends_at_last(
    client: Client, new_worker: NewWorker, recovery: Recovery, redis: Redis
) -> None:
    worker = new_worker().announce()
    worker.give(header("c"))
    attempts = 1
    while client.field("c", "state") != "failed":
        redis.zadd(keys.worker_calls(worker.name), {"c": LONG_AGO})
        recovery.sweep_never_begun()
        if client.field("c", "state") == "queued":
            attempts += 1
            worker.place(header("c"), attempts)
    failure = client.end("c").failure
    assert failure is not None
    assert failure.code is ErrorCode.WORKER_LOST
    assert attempts > 1


def test_an_entry_of_a_call_that_is_elsewhere_frees_its_slot(
    client: Client, new_worker: NewWorker, recovery: Recovery, redis: Redis
) -> None:
    here, there = new_worker("here@test").announce(), new_worker("there@test").announce()
    there.give(header("there"))
    call = there.begin()
    for call_id in ("there", "unknown", "spoiled"):
        redis.zadd(keys.worker_calls(here.name), {call_id: LONG_AGO})
    redis.set(keys.call("spoiled"), "not a record")
    recovery.sweep_workers()
    assert here.ledger.held_calls(here.name) == []
    assert there.ledger.held_calls(there.name) == ["there"]
    assert there.finish(call)


def test_a_queued_call_whose_message_was_lost_is_sent_again(
    client: Client, new_worker: NewWorker, recovery: Recovery, redis: Redis
) -> None:
    worker = new_worker().announce()
    for call_id in ("lost", "waits", "young"):
        client.submit(header(call_id))
    redis.delete(keys.SUBMIT_QUEUE)
    client.park("waits")
    worker.give(header("begun"))
    worker.begin()
    for call_id in ("lost", "waits", "begun"):
        redis.zadd(keys.PENDING, {call_id: LONG_AGO})
    recovery.sweep_messages()
    assert queued(redis) == [message(header("lost")).encode()]
    recovery.sweep_messages()
    assert queued(redis) == [message(header("lost")).encode()]


def test_a_record_that_its_client_spoiled_keeps_no_lost_message_of_another_from_being_sent_again(
    client: Client, recovery: Recovery, redis: Redis
) -> None:
    for call_id in ("record", "message", "gone", "lost"):
        client.submit(header(call_id))
        redis.zadd(keys.PENDING, {call_id: LONG_AGO})
    for key in (keys.call("record"), keys.message("message")):
        redis.delete(key)
        redis.set(key, "not what it should be")
    redis.delete(keys.SUBMIT_QUEUE, keys.call("gone"))
    recovery.sweep_messages()
    assert queued(redis) == [message(header("lost")).encode()]
    assert not redis.exists(keys.message("record"), keys.message("gone")), "nothing would ever remove it"


def test_every_lost_message_is_found_however_many_calls_there_are(
    client: Client, recovery: Recovery, redis: Redis
) -> None:
    count = 4500
    for number in range(count):
        client.submit(header(f"c{number}"))
        redis.zadd(keys.PENDING, {f"c{number}": LONG_AGO + number})
    found = set()
    redis.delete(keys.SUBMIT_QUEUE)
    for _ in range(3):
        recovery.sweep_messages()
        found.update(queued(redis))
        redis.delete(keys.SUBMIT_QUEUE)
    assert len(found) == count


def test_a_dead_routers_messages_go_back_where_they_were(client: Client, recovery: Recovery, redis: Redis) -> None:
    ledger = SessionLedger(redis)
    calls = [message(header(client.submit(header(f"c{number}")))).encode() for number in range(5)]
    ledger.renew_router("dead", 1)
    assert ledger.take("dead", 3) == calls[:3]
    assert ledger.await_item("dead", 1) == calls[3]
    redis.zadd(keys.ROUTERS, {"dead": LONG_AGO})
    recovery.sweep_routers()
    assert queued(redis) == calls
    assert redis.zcard(keys.ROUTERS) == 0
    assert client.taken() == 0


def test_a_living_router_keeps_what_it_has_taken(client: Client, recovery: Recovery, redis: Redis) -> None:
    ledger = SessionLedger(redis)
    client.submit(header("c"))
    ledger.renew_router("alive", 100)
    ledger.take("alive", 10)
    recovery.sweep_routers()
    assert ledger.give_back("alive", only_if_dead=True) is None
    assert queued(redis) == []
    assert client.taken() == 1


@pytest.mark.usefixtures("router")
def test_a_lost_workers_queued_call_runs_elsewhere(client: Client, new_worker: NewWorker) -> None:
    lost = new_worker("lost@test").announce()
    client.submit(header("c"))
    call, first = lost.receive_header()
    lost.vanish()
    other = new_worker("other@test").announce()
    _, second = other.receive_header()
    assert (first.attempt, second.attempt) == (1, 2)
    assert lost.ledger.claim(call) is None
    eventually(lambda: client.redis.zscore(keys.WORKERS, lost.name) is None, "the lost worker is forgotten")


@pytest.mark.usefixtures("router")
def test_every_time_a_call_is_placed_its_attempt_number_is_one_higher(
    client: Client, new_worker: NewWorker, recovery: Recovery
) -> None:
    worker = new_worker("worker1@test").announce()
    client.submit(header("c"))
    for attempt in range(1, 5):
        _, placement = worker.receive_header()
        assert placement.attempt == attempt
        following = new_worker(f"worker{attempt + 1}@test").announce()
        worker.vanish()
        recovery.sweep_workers()
        worker = following
