"""What a call needs of a worker beyond its Python: a flavor, and memory that is given once."""

from collections.abc import Callable

import pytest
from redis import Redis
from router_cluster import Client, Worker, catalogue, eventually, header

from readie.protocol import keys
from readie.protocol.codes import ErrorCode

NewWorker = Callable[..., Worker]
GIB = 1 << 30

pytestmark = pytest.mark.usefixtures("router")


def test_a_call_goes_to_a_worker_of_its_flavor(client: Client, new_worker: NewWorker) -> None:
    default = new_worker("default@test", slots=100).announce()
    science = new_worker("science@test", flavor="science", slots=1).announce()
    client.submit(header("c", flavor="science"))
    client.submit(header("usual"))
    assert science.begin().id == "c"
    assert default.begin().id == "usual"
    client.submit(header("second", flavor="science"))
    client.waits_for("second", "all workers of flavor science are full")


def test_an_unknown_flavor_is_refused_naming_what_is_there(client: Client, new_worker: NewWorker) -> None:
    new_worker("one@test").announce()
    new_worker("two@test", flavor="science").announce()
    client.submit(header("c", flavor="sience"))
    failure = client.end("c").failure
    assert failure is not None
    assert failure.code is ErrorCode.INVALID_REQUEST
    assert "'sience'" in failure.message
    assert "default, science" in failure.message


def test_a_call_waits_for_its_flavor_while_no_worker_runs_at_all(client: Client, new_worker: NewWorker) -> None:
    client.submit(header("c", flavor="science"))
    client.waits_for("c", "no worker is running")
    assert new_worker(flavor="science").announce().begin().id == "c"


def test_a_waiting_call_goes_on_waiting_while_the_worker_of_its_flavor_starts_again(
    client: Client, new_worker: NewWorker
) -> None:
    other = new_worker("other@test", slots=1).announce()
    science = new_worker("science@test", flavor="science", slots=1).announce()
    client.submit(header("first", flavor="science"))
    call = science.begin()
    client.submit(header("second", flavor="science"))
    client.waits_for("second", "all workers of flavor science are full")
    science.finish(call)
    science.begin()
    client.submit(header("third", flavor="science"))
    client.waits_for("third", "all workers of flavor science are full")
    science.ledger.withdraw(science.name)
    # Others' calls come and go, and each makes a router look at those that wait.
    for number in range(3):
        client.submit(header(f"other{number}"))
        other.finish(other.begin())
    client.waits_for("third", "no worker serves the flavor 'science'; the running workers serve default")
    science.restart()
    assert science.begin().id == "third"


def test_memory_is_given_once_and_freed_with_its_call(client: Client, new_worker: NewWorker, redis: Redis) -> None:
    worker = new_worker(slots=10, memory=4 * GIB).announce()
    client.submit(header("first", memory=3 * GIB))
    first = worker.begin()
    client.submit(header("second", memory=2 * GIB))
    client.waits_for("second", "all workers have less than 2.0 GiB of memory free")
    client.submit(header("small", memory=GIB))
    small = worker.begin()
    assert small.id == "small"
    worker.finish(first)
    second = worker.begin()
    assert second.id == "second"
    worker.finish(small)
    worker.finish(second)
    assert redis.exists(keys.worker_memory(worker.name)) == 0


def test_a_call_that_asks_for_no_memory_counts_with_what_the_worker_gives(
    client: Client, new_worker: NewWorker
) -> None:
    worker = new_worker(slots=10, memory=4 * GIB, call_memory=GIB).announce()
    client.submit(header("large", memory=3 * GIB))
    large = worker.begin()
    client.submit(header("one"))
    assert worker.begin().id == "one"
    client.submit(header("two"))
    client.waits_for("two", "all workers have too little memory free")
    worker.finish(large)
    assert worker.begin().id == "two"


def test_a_call_goes_where_its_memory_is_free_even_if_it_starts_later_there(
    client: Client, new_worker: NewWorker
) -> None:
    fast = new_worker("fast@test", memory=2 * GIB).serve(catalogue(("numpy", "pandas"), generation="fast")).announce()
    slow = new_worker("slow@test", memory=2 * GIB).serve(catalogue(generation="slow")).announce()
    for worker, call_id in ((fast, "first"), (slow, "second")):
        client.submit(header(call_id, imports=["pandas"], memory=2 * GIB))
        assert worker.begin().id == call_id


def test_more_memory_than_any_worker_could_ever_give_is_refused_at_once(client: Client, new_worker: NewWorker) -> None:
    new_worker("small@test", memory=2 * GIB).announce()
    new_worker("large@test", memory=4 * GIB).announce()
    client.submit(header("c", memory=5 * GIB))
    failure = client.end("c").failure
    assert failure is not None
    assert failure.code is ErrorCode.RESOURCE_EXHAUSTED
    assert "5.0 GiB" in failure.message
    assert "4.0 GiB" in failure.message


def test_the_memory_of_a_worker_that_does_not_know_it_is_not_counted(client: Client, new_worker: NewWorker) -> None:
    worker = new_worker(slots=2).announce()
    for number in range(2):
        client.submit(header(f"c{number}", memory=1 << 50))
        assert worker.begin().id == f"c{number}"


def test_a_large_memory_does_not_hold_up_others(client: Client, new_worker: NewWorker) -> None:
    worker = new_worker(slots=100, memory=4 * GIB).announce()
    client.submit(header("first", memory=3 * GIB))
    first = worker.begin()
    for number in range(50):
        client.submit(header(f"large{number}", memory=2 * GIB, priority=9))
    client.waits_for("large49", "all workers have less than 2.0 GiB of memory free")
    client.submit(header("small", memory=GIB))
    assert worker.begin().id == "small"
    worker.finish(first)
    assert worker.begin().id == "large0"


def test_the_memory_of_a_lost_workers_calls_is_forgotten(client: Client, new_worker: NewWorker, redis: Redis) -> None:
    worker = new_worker(slots=10, memory=4 * GIB).announce()
    client.submit(header("begun", memory=GIB))
    worker.begin()
    client.submit(header("queued", memory=GIB))
    eventually(worker.queued, "the call is placed")
    worker.vanish()
    client.end("begun")
    client.waits_for("queued", "no worker is running")
    eventually(lambda: not redis.exists(keys.worker_memory(worker.name)), "nothing is reserved")


def test_many_at_once_never_reserve_more_than_there_is(client: Client, new_worker: NewWorker, redis: Redis) -> None:
    worker = new_worker(slots=100, memory=10 * GIB, call_memory=GIB).announce()
    sizes = [GIB, 2 * GIB, 3 * GIB, None]
    for number in range(60):
        client.submit(header(f"c{number}", memory=sizes[number % 4]))
    ended = 0
    running = []
    while ended < 60:
        running.append(worker.begin())
        held = sum(call.options.memory_bytes or GIB for call in running)
        assert held <= 10 * GIB
        assert int(redis.hget(keys.worker_memory(worker.name), keys.TOTAL)) <= 10 * GIB
        if held > 5 * GIB or len(running) + ended == 60:
            while running:
                assert worker.finish(running.pop())
                ended += 1
    assert redis.exists(keys.worker_memory(worker.name)) == 0
