"""Clients take turns, and none takes the whole queue."""

from collections.abc import Callable

import pytest
from redis import Redis
from router_cluster import Client, Worker, eventually, header

from readie.protocol import keys
from readie.protocol.call import CallHeader
from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import CallState

NewWorker = Callable[..., Worker]


def call_of(client_name: str, number: int, **options: int) -> CallHeader:
    """Return a call of one client."""
    return header(f"{client_name}{number}", **options).model_copy(update={"client": client_name})  # type: ignore[arg-type]


def run_all(worker: Worker, count: int) -> list[str]:
    """Run calls one after the other; returns their ids in this order."""
    order = []
    for _ in range(count):
        call = worker.begin()
        order.append(call.id)
        assert worker.finish(call)
    return order


def wait(client: Client, calls: list[CallHeader]) -> None:
    """Submit calls and wait until they wait."""
    before = client.redis.zcard(keys.WAITING)
    for call in calls:
        client.submit(call)
    eventually(lambda: client.redis.zcard(keys.WAITING) == before + len(calls), "they wait")


@pytest.fixture
def worker(new_worker: NewWorker, client: Client, router: None) -> Worker:
    """A worker with one slot, which is taken."""
    worker = new_worker(slots=1).announce()
    client.submit(call_of("holder", 0))
    return worker


def test_ten_thousand_calls_of_one_client_do_not_hold_up_anothers(client: Client, worker: Worker) -> None:
    holder = worker.begin()
    flood = [call_of("many", number) for number in range(10_000)]
    wait(client, flood)
    assert worker.finish(holder)
    assert run_all(worker, 20) == [call.id for call in flood[:20]]
    running = worker.begin()
    wait(client, [call_of("few", number) for number in range(3)])
    assert worker.finish(running)
    order = run_all(worker, 8)
    assert [call_id for call_id in order if call_id.startswith("few")] == ["few0", "few1", "few2"]
    assert order.index("few0") <= 1
    assert order.index("few2") <= 6
    # Each client's own calls stay in order.
    assert [call_id for call_id in order if call_id.startswith("many")] == [f"many{number}" for number in range(21, 26)]


def test_priorities_go_before_turns(client: Client, worker: Worker) -> None:
    holder = worker.begin()
    wait(client, [call_of("a", number) for number in range(5)])
    wait(client, [call_of("b", 0, priority=1), call_of("a", 9, priority=2)])
    assert worker.finish(holder)
    assert run_all(worker, 3) == ["a9", "b0", "a0"]


def test_turns_are_fair_where_other_workers_are_busy(client: Client, worker: Worker, new_worker: NewWorker) -> None:
    """A client that comes has its turn next, although the turn elsewhere has come much further."""
    other = new_worker("other@test", slots=1, flavor="other").announce()
    client.submit(call_of("holder", 1).model_copy(update={"options": header("x", flavor="other").options}))
    held = other.begin()
    holder = worker.begin()
    wait(client, [call_of("many", number) for number in range(60)])
    other_flood = [
        call_of("slow", number).model_copy(update={"options": header("x", flavor="other").options})
        for number in range(30)
    ]
    wait(client, other_flood)
    assert worker.finish(holder)
    run_all(worker, 50)
    worker.begin()
    wait(client, [call_of("late", 0).model_copy(update={"options": header("x", flavor="other").options})])
    assert other.finish(held)
    assert "late0" in run_all(other, 2)


@pytest.mark.parametrize("router", [{"max_queued_per_client": 3}], indirect=True)
def test_one_client_can_not_take_the_whole_queue(client: Client, worker: Worker) -> None:
    worker.begin()
    wait(client, [call_of("many", number) for number in range(3)])
    client.submit(call_of("many", 3))
    failure = client.end("many3").failure
    assert failure is not None
    assert failure.code is ErrorCode.RESOURCE_EXHAUSTED
    assert "READIE_MAX_QUEUED_PER_CLIENT" in failure.message
    assert "'many'" in failure.message
    wait(client, [call_of("few", 0)])
    assert client.field("few0", "state") == CallState.QUEUED


@pytest.mark.parametrize("router", [{"max_queued_per_client": 1}], indirect=True)
def test_a_redis_user_can_not_wait_in_the_name_of_another(client: Client, worker: Worker) -> None:
    worker.begin()
    wait(client, [call_of("alice.", 1)])
    pretending = header("alice.2").model_copy(update={"client": "bob"})
    client.submit(pretending)
    failure = client.end("alice.2").failure
    assert failure is not None
    assert "of the client 'alice'" in failure.message
    wait(client, [call_of("bob.", 1)])


def test_nothing_of_the_turns_is_left_when_nobody_waits(client: Client, worker: Worker, redis: Redis) -> None:
    holder = worker.begin()
    wait(client, [call_of(name, number, priority=number) for name in "abc" for number in range(4)])
    client.ledger.cancel("a0")
    assert worker.finish(holder)
    run_all(worker, 11)
    assert redis.exists(keys.WAITING, keys.WAITING_OF, keys.WAITING_CLIENTS, keys.TURNS) == 0


def test_a_call_that_is_given_back_does_not_queue_again(client: Client, worker: Worker, new_worker: NewWorker) -> None:
    holder = worker.begin()
    wait(client, [call_of("many", number) for number in range(30)])
    assert worker.finish(holder)
    run_all(worker, 10)
    call, placement = worker.receive_header()
    client.ledger.requeue(call.id, worker.name, placement.incarnation)
    assert call.id in run_all(worker, 2)
