"""A function runs in a restored sandbox, isolated, fast, and tells how."""

import asyncio
import os
import pickle
import statistics
import time
from pathlib import Path

import pytest
from celery import Celery
from celery.result import AsyncResult

import readie
from readie import RemoteError, remote
from readie.protocol import keys
from readie.protocol.envelope import CallState, Report
from tests.local_stack import LocalStack, eventually, ready

pytestmark = pytest.mark.usefixtures("stack")

ROWS = [{"a": 1.0, "b": 4.0}, {"a": 3.0, "b": 8.0}]


@remote
def mean(rows: list[dict[str, float]]) -> dict[str, float]:
    import pandas as pd

    return pd.DataFrame(rows).mean().to_dict()


cold_mean = mean.options(disable_optimized_execution=True)


@pytest.fixture(scope="module")
def stack(unasked_stack: LocalStack) -> LocalStack:
    return unasked_stack


def run(function: readie.RemoteFunction[..., object], *arguments: object) -> tuple[object, Report, float]:
    """Return value, report and the seconds that the caller waited."""
    began = time.perf_counter()
    call = function.spawn(*arguments)
    value = call.result(timeout=60)
    return value, call.report(), time.perf_counter() - began


def test_a_call_is_restored_from_the_checkpoint_that_holds_its_imports() -> None:
    value, report, _ = run(mean, ROWS)
    assert value == {"a": 2.0, "b": 6.0}
    assert (report.start, report.checkpoint_id, report.fallback) == ("restored", "checkpoint_1", None)
    assert report.worker is not None
    assert report.worker.startswith("worker1@")
    assert report.attempt == 1


def test_phases_add_up_to_what_the_caller_waited() -> None:
    for function in (mean, cold_mean):
        _, report, waited = run(function, ROWS)
        assert sum(report.phases.values()) == pytest.approx(report.total_seconds, rel=0.05)
        assert report.total_seconds == pytest.approx(waited, rel=0.05)
        assert all(seconds >= 0 for seconds in report.phases.values()), report.phases


def test_a_restored_call_is_several_times_faster_than_the_same_call_cold(stack: LocalStack) -> None:
    restored, cold = [], []
    for _ in range(10):
        # As a fresh call finds the worker that was not called a moment ago.
        eventually(lambda: ready(stack).get("checkpoint_1"), "a sandbox is restored ahead")
        _, report, seconds = run(mean, ROWS)
        assert report.start == "restored"
        restored.append(seconds)
        _, report, seconds = run(cold_mean, ROWS)
        assert report.start == "cold"
        cold.append(seconds)
    ratio = statistics.median(cold) / statistics.median(restored)
    assert ratio >= 5, (cold, restored)


def test_two_restored_calls_share_no_randomness() -> None:
    # Two checkpoints have imported numpy, and the one that is ready is taken.
    @remote(checkpoint_id="checkpoint_1")
    def draw() -> tuple[float, float, bytes]:
        import random
        import ssl

        import numpy as np

        return random.random(), float(np.random.rand()), ssl.RAND_bytes(8)

    (first, report, _), (second, again, _) = run(draw), run(draw)
    assert report.start == again.start == "restored"
    assert report.checkpoint_id == again.checkpoint_id == "checkpoint_1"
    assert all(one != other for one, other in zip(first, second, strict=True))  # type: ignore[call-overload]


class WritesAFileWhenLoaded:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.open, (self.path, os.O_CREAT | os.O_WRONLY)


@pytest.mark.parametrize("size", [10, 100_000], ids=["in the message", "by reference"])
def test_no_user_byte_is_unpickled_outside_the_sandbox(tmp_path: Path, size: int) -> None:
    name = f"/tmp/{tmp_path.name}-{os.getpid()}-{size}"

    @remote
    def written(_argument: object, _filling: bytes) -> bool:
        return Path(name).exists()

    with pytest.raises(FileNotFoundError):
        Path(name).stat()
    assert written(WritesAFileWhenLoaded(name), os.urandom(size)), "the pickle was not even loaded"
    assert not Path(name).exists()


def test_an_exception_is_its_own_type_and_a_remote_error_with_the_remote_traceback() -> None:
    @remote
    def fail(key: str) -> None:
        raise KeyError(key)

    with pytest.raises(KeyError) as caught:
        fail("missing")
    assert isinstance(caught.value, RemoteError)
    assert caught.value.args == ("missing",)
    assert "raise KeyError(key)" in caught.value.remote_traceback or "in fail" in caught.value.remote_traceback
    assert caught.value.remote_type == "builtins.KeyError"


def test_a_call_can_be_awaited_spawned_and_found_again() -> None:
    async def many() -> list[dict[str, float]]:
        return await asyncio.gather(*(mean.aio(ROWS) for _ in range(3)))

    assert asyncio.run(many()) == [{"a": 2.0, "b": 6.0}] * 3
    call = mean.spawn(ROWS)
    found = readie.get_call(call.id)
    assert found.result(timeout=60) == call.result(timeout=60)
    assert found.status().state is CallState.DONE
    assert found.report().checkpoint_id == "checkpoint_1"
    with pytest.raises(readie.ResultExpiredError):
        readie.get_call("0" * 32)


def test_a_wait_that_is_too_short_leaves_the_call_running() -> None:
    call = cold_mean.spawn(ROWS)
    with pytest.raises(TimeoutError, match=call.id):
        call.result(timeout=0.001)
    assert call.result(timeout=60) == {"a": 2.0, "b": 6.0}


def test_large_arguments_and_results_pass_unchanged() -> None:
    @remote
    def echo(data: bytes) -> bytes:
        return data[::-1]

    data = os.urandom(20_000_000)
    assert echo(data) == data[::-1]


def test_arrays_travel_out_of_band() -> None:
    @remote
    def doubled(count: int) -> object:
        import numpy as np

        return pickle.PickleBuffer(np.arange(count) * 2).raw().tobytes()

    assert memoryview(doubled(1000)).cast("q")[10] == 20  # type: ignore[arg-type]


def test_celery_finds_the_result_under_the_same_id(stack: LocalStack) -> None:
    call = mean.spawn(ROWS)
    call.result(timeout=60)
    result = AsyncResult(call.id, app=Celery("reader", backend=stack.redis_url))
    assert result.state == "SUCCESS"
    assert result.get(timeout=5)["report"]["checkpoint_id"] == "checkpoint_1"


def test_a_pinned_checkpoint_is_restored_and_an_unknown_one_refused() -> None:
    _, report, _ = run(mean.options(checkpoint_id="checkpoint_0"), ROWS)
    assert (report.start, report.checkpoint_id) == ("restored", "checkpoint_0")
    with pytest.raises(readie.InvalidRequestError, match="checkpoint_99"):
        mean.options(checkpoint_id="checkpoint_99")(ROWS)


def test_a_timeout_stops_the_function_and_leaves_the_worker_well() -> None:
    @remote(timeout=0.5)
    def forever() -> None:
        while True:
            pass

    with pytest.raises(readie.CallTimeoutError, match=r"0\.5 s"):
        forever()
    assert mean(ROWS) == {"a": 2.0, "b": 6.0}


def test_a_sandbox_that_dies_ends_its_call_alone() -> None:
    @remote
    def leave() -> None:
        import os

        os._exit(3)

    with pytest.raises(readie.SandboxDiedError):
        leave()
    assert mean(ROWS) == {"a": 2.0, "b": 6.0}


def test_a_missing_module_is_reported_as_the_functions_own_error() -> None:
    @remote
    def needs_it() -> None:
        import a_package_that_is_nowhere  # noqa: F401

    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_nowhere"):
        needs_it()


def test_status_lists_the_worker_with_its_checkpoints(stack: LocalStack) -> None:
    (worker,) = stack.status()["workers"]
    assert worker["slots"] == 4
    assert worker["checkpoints"] == ["checkpoint_0", "checkpoint_1", "checkpoint_2"]
    assert worker["generation"]
    os.kill(worker["pid"], 0)


def test_nothing_of_a_call_stays_in_redis_but_what_expires(stack: LocalStack) -> None:
    from redis import Redis

    redis = Redis.from_url(stack.redis_url)
    call = mean.spawn(ROWS)
    call.result(timeout=60)
    mine = [key for key in redis.keys("*") if call.id.encode() in key]
    assert sorted(mine) == sorted([keys.call(call.id).encode(), keys.result(call.id).encode()])
    assert all(redis.ttl(key) > 0 for key in mine)
    redis.close()
