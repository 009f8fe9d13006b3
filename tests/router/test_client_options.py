"""Options of a remote function, from ``@remote`` to what a router makes of them and what the caller gets."""

from collections.abc import Callable

import pytest
from router_cluster import Worker, catalogue, eventually

import readie
from readie.protocol import keys

NewWorker = Callable[..., Worker]

pytestmark = pytest.mark.usefixtures("router", "configured")


@readie.remote
def function() -> int:
    return 1


def test_a_call_that_is_not_begun_within_its_expires_raises_that_it_expired() -> None:
    call = function.options(expires=0.2).spawn()
    with pytest.raises(readie.CallExpiredError, match="within its expires"):
        call.result(timeout=30)
    assert str(call.status()) == "expired"


def test_a_call_of_an_unknown_flavor_raises_what_there_is(new_worker: NewWorker) -> None:
    new_worker().announce()
    with pytest.raises(readie.InvalidRequestError, match="'missing'; the running workers serve default"):
        function.options(flavor="missing")()


def test_a_call_that_asks_for_too_much_memory_raises_how_much_there_is(new_worker: NewWorker) -> None:
    new_worker(memory=1 << 30).announce()
    with pytest.raises(readie.ResourceExhaustedError, match=r"2\.0 GiB of memory; the largest worker has 1\.0 GiB"):
        function.options(memory="2Gi")()


def test_a_call_of_a_flavor_reaches_its_worker_with_its_options(new_worker: NewWorker) -> None:
    worker = new_worker(flavor="science", memory=1 << 30).serve(catalogue(("numpy",))).announce()
    call = function.options(flavor="science", priority=7, memory="512Mi", expires=60).spawn()
    header = worker.begin()
    assert header.id == call.id
    options = header.options
    assert (options.flavor, options.priority, options.memory_bytes, options.expires_seconds) == (
        "science",
        7,
        512 << 20,
        60,
    )
    assert worker.redis.hget(keys.worker_memory(worker.name), call.id) == str(512 << 20).encode()


def test_of_waiting_calls_the_one_with_the_higher_priority_runs_first(new_worker: NewWorker) -> None:
    usual = function.spawn()
    urgent = function.options(priority=1).spawn()
    eventually(lambda: str(urgent.status()) == "queued (no worker is running)", "it waits")
    worker = new_worker(slots=1).announce()
    first = worker.begin()
    assert first.id == urgent.id
    assert worker.finish(first)
    assert worker.begin().id == usual.id


@pytest.mark.parametrize("router", [{"max_queued": 0}], indirect=True)
def test_a_full_queue_raises_at_once() -> None:
    with pytest.raises(readie.ResourceExhaustedError, match="0 calls wait already"):
        function()
