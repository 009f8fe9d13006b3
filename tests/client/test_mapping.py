"""``map``: order, window, errors, endless input, and what becomes of the rest."""

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from ending import Cluster
from redis import Redis

import readie
from readie import (
    CallCancelledError,
    ClusterUnavailableError,
    ConfigurationError,
    SerializationError,
    remote,
)
from readie.client import default_client
from readie.protocol import keys
from tests.local_stack import eventually


@remote
def double(number: int) -> Any:
    return 2 * number


@pytest.fixture
def cluster(redis: Redis, redis_url: str) -> Iterator[Cluster]:
    readie.configure(redis_url=redis_url)
    yield Cluster(redis)
    default_client().close()


def pending(redis: Redis) -> list[str]:
    """Return the calls that have not ended, oldest first."""
    return [entry.decode() for entry in redis.zrange(keys.PENDING, 0, -1)]  # type: ignore[union-attr]


class Answering:
    """Ends calls in another thread: of those that wait, the ``pick``-th."""

    def __init__(self, cluster: Cluster, pick: int, at_least: int) -> None:
        self._cluster, self._pick, self._at_least = cluster, pick, at_least
        self._stop = threading.Event()
        self.most = 0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Answering":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        order = itertools.count()
        while not self._stop.is_set():
            ids = pending(self._cluster.redis)
            self.most = max(self.most, len(ids))
            if len(ids) >= self._at_least:
                with contextlib.suppress(AssertionError):  # cancelled at this moment
                    header = self._cluster.begin(ids[self._pick])
                    self._cluster.finish(header, next(order))


def test_values_come_in_the_order_of_the_items_or_as_they_come(cluster: Cluster) -> None:
    with Answering(cluster, pick=-1, at_least=1):  # the youngest first
        ordered = list(itertools.islice(double.map(range(6), window=3), 6))
    assert sorted(ordered) == list(range(6))
    with Answering(cluster, pick=-1, at_least=1):
        assert list(double.map(range(6), window=3, ordered=False)) == list(range(6))


def test_endless_input_is_read_only_as_far_as_the_window_allows(cluster: Cluster) -> None:
    read: list[int] = []

    def items() -> Iterator[int]:
        for number in itertools.count():
            read.append(number)
            yield number

    values = double.map(items(), window=5)
    with Answering(cluster, pick=0, at_least=5) as answering:
        assert list(itertools.islice(values, 20)) == list(range(20))
        assert answering.most == 5
    assert len(read) <= 20 + 5
    values.close()  # type: ignore[attr-defined]
    assert pending(cluster.redis) == [], "what was left is cancelled"


def test_slow_input_does_not_hold_back_what_has_ended(cluster: Cluster) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        yield 1
        eventually(lambda: not pending(cluster.redis), "the first call has ended")
        yield 2
        eventually(lambda: taken == [0], "its value is not held back until the window is full")

    with Answering(cluster, pick=0, at_least=1):
        for value in double.map(items(), window=10):
            taken.append(value)  # noqa: PERF402 - the input looks at it
    assert taken == [0, 1]


def test_the_first_error_is_raised_and_cancels_the_rest_or_takes_its_place(cluster: Cluster) -> None:
    values = double.map(range(3), window=3)
    canceller = threading.Thread(
        target=lambda: readie.get_call(
            eventually(lambda: len(pending(cluster.redis)) == 3 and pending(cluster.redis), "all three")[0]
        ).cancel()
    )
    canceller.start()
    with pytest.raises(CallCancelledError):
        next(values)
    canceller.join()
    assert pending(cluster.redis) == []
    tolerant = double.map(range(2), window=1, return_exceptions=True)
    canceller = threading.Thread(
        target=lambda: readie.get_call(eventually(lambda: pending(cluster.redis), "a call")[0]).cancel()
    )
    canceller.start()
    assert isinstance(next(tolerant), CallCancelledError)
    canceller.join()
    with Answering(cluster, pick=0, at_least=1):
        assert list(tolerant) == [0]


@pytest.mark.parametrize("ordered", [True, False])
def test_the_async_twin_does_the_same(cluster: Cluster, ordered: bool) -> None:
    async def use() -> list[Any]:
        found = []
        async for value in double.map.aio(itertools.count(), window=4, ordered=ordered):
            found.append(value)
            if len(found) == 10:
                break
        return found

    async def whole() -> list[Any]:
        return [value async for value in double.starmap.aio([(1,), (2,), (3,)], ordered=ordered)]

    with Answering(cluster, pick=0, at_least=1):
        assert sorted(asyncio.run(use())) == list(range(10))
        eventually(lambda: not pending(cluster.redis), "what was left has ended")
        assert len(asyncio.run(whole())) == 3


def test_cancelling_the_task_cancels_what_is_under_way(cluster: Cluster) -> None:
    async def use() -> None:
        async def consume() -> None:
            async for _ in double.map.aio(range(100), window=7):
                pass

        task = asyncio.create_task(consume())
        await asyncio.to_thread(eventually, lambda: len(pending(cluster.redis)) == 7, "the window is full")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(eventually, lambda: not pending(cluster.redis), "all are cancelled")

    asyncio.run(use())


@pytest.mark.parametrize(
    "use", ["double(1)", "list(double.map(range(9), window=3))", "[n for n in double.map(range(9), progress=True)]"]
)
def test_an_interrupt_cancels_what_is_pending(cluster: Cluster, redis_url: str, use: str) -> None:
    program = f"from readie import remote\n@remote\ndef double(n): return 2 * n\n{use}\n"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "READIE_REDIS_URL": redis_url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    count = 1 if use == "double(1)" else 3 if "window" in use else 9
    eventually(lambda: len(pending(cluster.redis)) == count, "the calls")
    process.send_signal(signal.SIGINT)
    _, shown = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in shown
    assert pending(cluster.redis) == []


def test_a_progress_bar_goes_to_stderr(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    with Answering(cluster, pick=0, at_least=1):
        assert list(double.map([1, 2, 3], progress=True)) == [0, 1, 2]
    out, shown = capsys.readouterr()
    assert out == ""
    assert "3/3" in shown


def test_a_window_below_one_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="window=0"):
        double.map([1], window=0)


@pytest.mark.parametrize("ordered", [True, False])
def test_an_item_that_can_not_be_sent_gets_its_error_in_its_place_or_raises_it(cluster: Cluster, ordered: bool) -> None:
    items = [1, threading.Lock(), 3]
    with Answering(cluster, pick=0, at_least=1):
        values = list(double.map(items, return_exceptions=True, ordered=ordered))
        assert sorted(type(value).__name__ for value in values) == ["SerializationError", "int", "int"]
        assert isinstance(values[1], SerializationError) or not ordered
        with pytest.raises(SerializationError):
            list(double.map(items))

        async def use() -> list[Any]:
            return [value async for value in double.map.aio(items, return_exceptions=True, ordered=ordered)]

        assert sum(isinstance(value, SerializationError) for value in asyncio.run(use())) == 1
    assert pending(cluster.redis) == []


def test_a_redis_that_is_gone_is_no_error_of_an_item() -> None:
    readie.configure(redis_url="redis://127.0.0.1:1/0")
    with pytest.raises(ClusterUnavailableError):
        list(double.map(itertools.count(), return_exceptions=True))


def test_starmap_says_what_it_takes_when_it_gets_no_tuples(cluster: Cluster) -> None:
    with pytest.raises(ConfigurationError, match=r"a tuple of arguments .*such as \(1,\).* got 1 \(int\)"):
        list(double.starmap([1]))
    (value,) = double.starmap([1], return_exceptions=True)
    assert isinstance(value, ConfigurationError)
