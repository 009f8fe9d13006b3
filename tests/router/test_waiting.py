"""Calls that no worker can take now wait in Redis, hold up nothing, and run as soon as one can."""

from collections.abc import Callable

import pytest
from redis import Redis
from router_cluster import Client, RouterProcess, Worker, catalogue, eventually, header

from readie.protocol import keys
from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import CallState, Envelope

NewWorker = Callable[..., Worker]


@pytest.mark.usefixtures("router")
def test_a_call_waits_for_a_worker_and_says_so(client: Client, new_worker: NewWorker) -> None:
    client.submit(header("c"))
    client.waits_for("c", "no worker is running")
    worker = new_worker().announce()
    assert worker.begin().id == "c"
    assert not client.is_waiting("c")
    assert client.ledger.state("c") == (CallState.RUNNING, "")
    assert client.redis.exists(keys.WAITING, keys.WAITING_GROUPS) == 0


@pytest.mark.usefixtures("router")
def test_what_a_call_waits_for_is_kept_up_to_date(client: Client, new_worker: NewWorker) -> None:
    for call_id in ("first", "second", "third"):
        client.submit(header(call_id))
        client.waits_for(call_id, "no worker is running")
    new_worker(slots=1).announce()
    client.waits_for("second", "all workers are full")
    client.waits_for("third", "all workers are full")


@pytest.mark.usefixtures("router")
def test_waiting_calls_run_oldest_first_as_others_end(client: Client, new_worker: NewWorker) -> None:
    worker = new_worker(slots=2).announce()
    running = []
    for number in range(9):
        client.submit(header(f"c{number}"))
        if number < 2:
            running.append(worker.begin())
        else:
            client.waits_for(f"c{number}", "all workers are full")
    order = [call.id for call in running]
    while running:
        assert worker.finish(running.pop(0))
        if len(order) < 9:
            running.append(worker.begin())
            order.append(running[-1].id)
    assert order == [f"c{number}" for number in range(9)]


@pytest.mark.usefixtures("router")
def test_waiting_calls_run_by_priority_then_age(client: Client, new_worker: NewWorker) -> None:
    worker = new_worker(slots=1).announce()
    client.submit(header("first"))
    running = worker.begin()
    for number, priority in enumerate([0, 9, 3, 0, 9, 3]):
        client.submit(header(f"p{priority}-{number}", priority=priority))
        client.waits_for(f"p{priority}-{number}", "all workers are full")
    order = []
    for _ in range(6):
        assert worker.finish(running)
        running = worker.begin()
        order.append(running.id)
    assert order == ["p9-1", "p9-4", "p3-2", "p3-5", "p0-0", "p0-3"]


@pytest.mark.usefixtures("router")
def test_priority_counts_across_calls_of_different_needs(client: Client, new_worker: NewWorker) -> None:
    worker = new_worker(slots=1).serve(catalogue(("numpy",))).announce()
    client.submit(header("first"))
    running = worker.begin()
    client.submit(header("usual"))
    client.submit(header("pinned", pin="checkpoint_1", priority=1))
    client.submit(header("pinned-too", pin="checkpoint_1"))
    client.submit(header("urgent", priority=2))
    client.waits_for("urgent", "all workers are full")
    order = []
    for _ in range(4):
        assert worker.finish(running)
        running = worker.begin()
        order.append(running.id)
    assert order == ["urgent", "pinned", "usual", "pinned-too"]


@pytest.mark.usefixtures("router")
def test_a_call_taken_back_from_its_worker_keeps_its_place(client: Client, new_worker: NewWorker) -> None:
    lost = new_worker("lost@test", slots=1).announce()
    client.submit(header("old"))
    lost.receive()
    client.submit(header("young"))
    client.waits_for("young", "all workers are full")
    lost.vanish()
    client.waits_for("old", "no worker is running")
    worker = new_worker(slots=1).announce()
    call = worker.begin()
    assert call.id == "old"
    worker.finish(call)
    assert worker.begin().id == "young"


@pytest.mark.usefixtures("router")
@pytest.mark.parametrize("router", [{"max_queued": 3}], indirect=True)
def test_no_more_calls_wait_than_may(client: Client, new_worker: NewWorker) -> None:
    for number in range(3):
        client.submit(header(f"c{number}"))
    client.submit(header("too-many"))
    failure = client.end("too-many").failure
    assert failure is not None
    assert failure.code is ErrorCode.RESOURCE_EXHAUSTED
    assert "READIE_MAX_QUEUED" in failure.message
    client.end_of_queue()
    worker = new_worker(slots=1).announce()
    assert worker.begin().id == "c0"
    client.submit(header("next"))
    client.waits_for("next", "all workers are full")


@pytest.mark.usefixtures("router")
@pytest.mark.parametrize("router", [{"max_queued": 1}], indirect=True)
def test_a_call_that_was_on_a_worker_waits_though_the_queue_is_full(client: Client, new_worker: NewWorker) -> None:
    lost = new_worker("lost@test").announce()
    client.submit(header("old"))
    lost.receive()
    lost.drain()
    client.submit(header("waits"))
    client.waits_for("waits", "all workers are full")
    lost.vanish()
    client.waits_for("old", "no worker is running")


@pytest.mark.usefixtures("router")
def test_a_freed_slot_costs_the_same_however_many_calls_wait(
    client: Client, new_worker: NewWorker, redis: Redis
) -> None:
    worker = new_worker(slots=1).serve(catalogue(("numpy",))).announce()
    other = new_worker("other@test", slots=1).announce()
    for held in (worker, other):
        client.submit(header(f"first-{held.name[:5]}", pin="checkpoint_1" if held is worker else None))
        held.receive()

    def commands_for_one_end(already: int, waiting: int) -> int:
        for number in range(already, waiting):
            client.submit(header(f"pinned{number}", pin="checkpoint_1"))
            client.submit(header(f"usual{number}"))
        client.end_of_queue()
        client.waits_for(f"usual{waiting - 1}", "all workers are full")
        before = redis.info("commandstats")["cmdstat_hmget"]["calls"]
        assert other.ledger.finish(
            Envelope(id=other.ledger.held_calls(other.name)[0], state=CallState.DONE), attempt=1, keep_seconds=60
        )
        other.receive()
        client.end_of_queue()
        return int(redis.info("commandstats")["cmdstat_hmget"]["calls"]) - before

    few = commands_for_one_end(0, 10)
    assert commands_for_one_end(10, 1500) <= few + 20


@pytest.mark.usefixtures("router")
def test_nothing_is_left_of_groups_whose_calls_are_gone(client: Client, new_worker: NewWorker, redis: Redis) -> None:
    for number in range(5):
        client.submit(header(f"usual{number}"))
        client.submit(header(f"pinned{number}", pin="checkpoint_1", memory=1000 + number, expires=0.2))
        client.submit(header(f"cancelled{number}", python="3.12"))
    client.waits_for("cancelled4", "no worker is running")
    for number in range(5):
        client.ledger.cancel(f"cancelled{number}")
        client.end(f"pinned{number}")
    worker = new_worker(slots=5).announce()
    for _ in range(5):
        worker.begin()
    left = {key.decode() for key in redis.scan_iter(keys.PREFIX + "waiting*")}
    assert left == set()


@pytest.mark.usefixtures("router")
def test_a_waiting_call_does_not_hold_up_one_that_can_run(client: Client, new_worker: NewWorker) -> None:
    full = new_worker("full@test", slots=1).serve(catalogue(("numpy",), generation="full")).announce()
    client.submit(header("first", pin="checkpoint_1"))
    assert full.begin().id == "first"
    free = new_worker("free@test").announce()
    for number in range(200):
        client.submit(header(f"waits{number}", pin="checkpoint_1"))
    client.submit(header("runs"))
    assert free.begin().id == "runs"
    client.waits_for("waits199", "all workers that have checkpoint_1 are full")


@pytest.mark.usefixtures("router")
def test_freed_capacity_reaches_a_call_behind_many_that_it_is_no_use_to(client: Client, new_worker: NewWorker) -> None:
    pinned = new_worker("pinned@test", slots=1).serve(catalogue(("numpy",), generation="pinned")).announce()
    plain = new_worker("plain@test", slots=1).announce()
    client.submit(header("holds-pinned", pin="checkpoint_1"))
    pinned.begin()
    client.submit(header("holds-plain"))
    held = plain.begin()
    for number in range(200):
        client.submit(header(f"waits{number}", pin="checkpoint_1"))
    client.submit(header("last"))
    client.waits_for("last", "all workers are full")
    plain.finish(held)
    assert plain.begin().id == "last"


@pytest.mark.usefixtures("router")
def test_a_slot_freed_among_many_that_are_no_use_reaches_the_call_that_waits_for_it(
    client: Client, new_worker: NewWorker
) -> None:
    pinned = new_worker("pinned@test", slots=1).serve(catalogue(("numpy",), generation="pinned")).announce()
    plain = new_worker("plain@test", slots=1).announce()
    client.submit(header("first", pin="checkpoint_1"))
    held = pinned.begin()
    client.submit(header("waits", pin="checkpoint_1"))
    client.waits_for("waits", "all workers that have checkpoint_1 are full")
    for number in range(50):
        client.submit(header(f"c{number}"))
        call = plain.begin()
        if number == 25:
            pinned.finish(held)
        plain.finish(call)
    assert pinned.begin().id == "waits"


@pytest.mark.usefixtures("router")
def test_a_draining_worker_gets_nothing_and_its_calls_wait(client: Client, new_worker: NewWorker) -> None:
    worker = new_worker().announce()
    client.submit(header("before"))
    assert worker.begin().id == "before"
    worker.drain()
    client.submit(header("after"))
    client.waits_for("after", "all workers are full")
    assert new_worker("other@test").announce().begin().id == "after"


@pytest.mark.usefixtures("router")
def test_a_waiting_call_is_refused_when_only_workers_come_that_can_never_take_it(
    client: Client, new_worker: NewWorker
) -> None:
    client.submit(header("python", python="3.9"))
    client.submit(header("pin", pin="checkpoint_7"))
    client.waits_for("python", "no worker is running")
    client.waits_for("pin", "no worker is running")
    new_worker().announce()
    python, pin = client.end("python").failure, client.end("pin").failure
    assert python is not None
    assert python.code is ErrorCode.INCOMPATIBLE_PYTHON
    assert pin is not None
    assert pin.code is ErrorCode.INVALID_REQUEST
    assert not client.is_waiting("python")
    assert not client.is_waiting("pin")


@pytest.mark.usefixtures("router")
def test_a_waiting_call_whose_record_is_gone_is_forgotten(client: Client, new_worker: NewWorker, redis: Redis) -> None:
    client.submit(header("gone"))
    client.submit(header("there"))
    client.waits_for("gone", "no worker is running")
    client.waits_for("there", "no worker is running")
    redis.delete(keys.call("gone"))
    worker = new_worker().announce()
    assert worker.begin().id == "there"
    eventually(lambda: not client.is_waiting("gone"), "the call is forgotten")


def test_waiting_calls_outlive_their_router(
    client: Client, new_worker: NewWorker, start_router: Callable[..., RouterProcess]
) -> None:
    router = start_router()
    for number in range(100):
        client.submit(header(f"c{number}"))
    client.waits_for("c99", "no worker is running")
    router.kill()
    worker = new_worker(slots=100).announce()
    start_router()
    assert {worker.begin().id for _ in range(100)} == {f"c{number}" for number in range(100)}


def test_every_call_runs_however_routers_and_freed_slots_race(
    client: Client, new_worker: NewWorker, start_router: Callable[..., RouterProcess]
) -> None:
    start_router()
    start_router()
    workers = [new_worker(f"worker{number}@test", slots=2).announce() for number in range(3)]
    for number in range(600):
        client.submit(header(f"c{number}"))
    order: list[str] = []

    def work() -> bool:
        for worker in workers:
            if worker.queued():
                call = worker.begin()
                order.append(call.id)
                assert worker.finish(call)
        return len(order) >= 600

    eventually(work, "the end of all calls")
    client.end_of_queue()
    assert sorted(order) == sorted(f"c{number}" for number in range(600))
    assert client.redis.zcard(keys.PENDING) == 0
    assert client.redis.zcard(keys.WAITING) == 0
    assert all(client.redis.zcard(keys.worker_calls(worker.name)) == 0 for worker in workers)
