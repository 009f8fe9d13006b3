"""Many calls wait on one connection; threads, forks and event loops each get on with it."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from ending import Cluster
from redis import Redis

import readie
from readie import CallCancelledError, ConfigurationError, ResultExpiredError, RunningLoopError, remote
from readie.client import default_client
from readie.protocol import keys
from tests.local_stack import eventually

MANY = 2000


@pytest.fixture
def cluster(redis: Redis, redis_url: str) -> Iterator[Cluster]:
    readie.configure(redis_url=redis_url)
    yield Cluster(redis)
    default_client().close()


@remote
def double(number: int) -> int:
    return 2 * number


def client_connections(redis: Redis) -> list[dict[str, str]]:
    return [entry for entry in redis.client_list() if entry["name"] == "readie-client"]  # type: ignore[union-attr]


def test_2000_pending_calls_wait_on_one_connection_and_one_thread(cluster: Cluster) -> None:
    threads = threading.active_count()
    calls = [double.spawn(number) for number in range(MANY)]
    waiting = [entry for entry in client_connections(cluster.redis) if int(entry["sub"]) > 0]
    assert len(waiting) == 1
    # Besides it the pool's: one that submits, one that looked for ends that were told before the subscription.
    assert len(client_connections(cluster.redis)) <= 3
    assert threading.active_count() == threads + 1
    for number, call in enumerate(calls):
        cluster.finish(cluster.begin(call.id), 2 * number)
    assert [call.result(timeout=60) for call in calls] == [2 * number for number in range(MANY)]


def test_2000_calls_can_be_awaited_at_once(cluster: Cluster) -> None:
    calls = [double.spawn(number) for number in range(MANY)]

    async def await_all() -> tuple[list[int], int]:
        waits = asyncio.gather(*calls)
        await asyncio.sleep(0)
        threads = threading.active_count()
        await asyncio.to_thread(lambda: [cluster.finish(cluster.begin(call.id), call.id) for call in calls])
        return await waits, threads

    before = threading.active_count()
    values, threads = asyncio.run(await_all())
    assert values == [call.id for call in calls]
    assert threads == before


def test_threads_share_the_connection(cluster: Cluster) -> None:
    with ThreadPoolExecutor(20) as pool:
        calls = list(pool.map(double.spawn, range(100)))
        waits = [pool.submit(call.result, 60) for call in calls]
        for call in calls:
            cluster.finish(cluster.begin(call.id), call.id)
        assert [wait.result() for wait in waits] == [call.id for call in calls]


def in_child(work: Any) -> int:
    """Run something in a forked child and return its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if work() else 2
        finally:
            os._exit(status)
    return pid


def test_a_forked_child_has_its_own_connection_and_can_wait_for_its_parents_calls(cluster: Cluster) -> None:
    before = double.spawn(1)

    def work() -> bool:
        mine = double.spawn(2)
        return (before.result(timeout=60), mine.result(timeout=60)) == ("of the parent", "of the child")

    pid = in_child(work)
    (mine,) = eventually(lambda: [i for i in pending(cluster) if i != before.id], "the child's call")
    # Watched by both by now: the child asked before it submitted, or asks when it waits.
    cluster.finish(cluster.begin(mine), "of the child")
    cluster.finish(cluster.begin(before.id), "of the parent")
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert before.result(timeout=60) == "of the parent", "the parent waits on"


def pending(cluster: Cluster) -> list[str]:
    return [entry.decode() for entry in cluster.redis.zrange(keys.PENDING, 0, -1)]  # type: ignore[union-attr]


def test_a_child_keeps_the_settings_of_its_parent(cluster: Cluster) -> None:
    url = default_client().settings.redis_url
    pid = in_child(lambda: default_client().settings.redis_url == url)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_the_blocking_form_in_a_running_loop_names_the_other(cluster: Cluster) -> None:
    async def use() -> None:
        with pytest.raises(RunningLoopError, match=r"await double\.aio"):
            double(1)
        with pytest.raises(RunningLoopError, match=r"f\.map\.aio"):
            double.map([1])
        call = double.spawn(1)
        with pytest.raises(RunningLoopError, match="await call"):
            call.result()
        with pytest.raises(RunningLoopError, match="await call"):
            readie.gather(call, return_exceptions=True)
        call.cancel()
        with pytest.raises(CallCancelledError):
            await call
        with pytest.raises(CallCancelledError):
            call.result()  # it has ended: this blocks nothing

    asyncio.run(use())
    assert pending(cluster) == [], "what was refused was not submitted"


def test_cancelling_the_task_cancels_its_call(cluster: Cluster) -> None:
    async def use() -> None:
        task = asyncio.create_task(double.aio(1))
        await asyncio.to_thread(eventually, lambda: pending(cluster), "the call")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(use())
    assert pending(cluster) == []


def test_a_result_is_kept_for_a_set_time_and_then_expired(cluster: Cluster) -> None:
    call = double.spawn(1)
    found = readie.get_call(call.id)
    cluster.finish(cluster.begin(call.id), "x" * 100_000, keep_seconds=1)
    eventually(lambda: not cluster.redis.exists(keys.call(call.id)), "the record is gone")
    for attempt in (lambda: readie.get_call(call.id), call.result, found.result, call.status):
        began = time.monotonic()
        with pytest.raises(ResultExpiredError):
            attempt()  # type: ignore[operator]
        assert time.monotonic() - began < 30, "never a wait without end"


def test_as_completed_and_gather_take_calls_of_any_function(cluster: Cluster) -> None:
    first, second = double.spawn(1), double.options(name="other").spawn(2)
    cluster.finish(cluster.begin(second.id), "second")
    ends = readie.as_completed([first, second], timeout=60)
    assert next(ends) is second
    with pytest.raises(TimeoutError, match="none of 1 calls"):
        next(readie.as_completed([first], timeout=0.01))
    cluster.finish(cluster.begin(first.id), "first")
    assert next(ends) is first
    assert readie.gather(first, second) == ["first", "second"]
    cancelled = double.spawn(3)
    cancelled.cancel()
    assert isinstance(readie.gather(cancelled, return_exceptions=True)[0], CallCancelledError)


def test_what_is_no_call_and_no_timeout_is_said_to_be_none(cluster: Cluster) -> None:
    call = double.spawn(1)
    for wrong in (lambda: readie.gather(call, 5), lambda: readie.as_completed([call, double])):  # type: ignore[list-item]
        with pytest.raises(ConfigurationError, match=r"takes calls, as f.spawn\(...\) returns them; number 2 is"):
            wrong()
    with pytest.raises(ConfigurationError, match=r"an iterable of calls, not <readie\.Call"):
        readie.as_completed(call)  # type: ignore[arg-type]
    for use in (call.result, call.report, lambda timeout: readie.as_completed([call], timeout)):
        for timeout in ("x", True, float("nan")):
            with pytest.raises(ConfigurationError, match="give seconds"):
                use(timeout)  # type: ignore[operator]
    call.cancel()
