"""A worker that is asked to stop finishes what runs, within a limit, and gives back the rest."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from readie import WorkerLostError, remote
from readie.protocol.envelope import CallState
from tests.chaos.cluster import Cluster, Part
from tests.chaos.executions import Executions
from tests.local_stack import eventually

DRAIN_SECONDS = 6
"""Longer than a lease, which a worker that drains must keep."""
LEASE_SECONDS = 4


@pytest.fixture(scope="module")
def cluster(new_cluster: Callable[..., Cluster]) -> Cluster:
    """Two workers; the tests stop the first."""
    settings = {
        "READIE_DRAIN_SECONDS": str(DRAIN_SECONDS),
        "READIE_LEASE_SECONDS": str(LEASE_SECONDS),
        "READIE_LEASE_RENEWAL_SECONDS": "1",
    }
    return new_cluster(workers=2, slots=2, environment=settings)


@pytest.fixture
def worker(cluster: Cluster) -> Iterator[Part]:
    """The one worker that takes calls: the second is paused until the first is asked to stop."""
    first, second = cluster.workers
    if not first.lives:
        first.start()
        cluster.wait_for_worker(first)
    incarnation = cluster.entry(second)[b"incarnation"]
    second.send(signal.SIGSTOP)
    eventually(lambda: not cluster.entry(second), "the second worker's lease ends")
    yield first
    second.send(signal.SIGCONT)
    eventually(lambda: cluster.entry(second).get(b"incarnation") == incarnation, "the second worker is back")


@remote
def run(marker: str, seconds: float) -> str:
    """Show that it runs, and take a while."""
    Path(marker).read_text()
    time.sleep(seconds)
    return "done"


def test_running_calls_finish_and_the_others_run_elsewhere(
    cluster: Cluster, worker: Part, executions: Executions
) -> None:
    running = [run.spawn(executions.marker(f"finish{number}"), 3) for number in range(2)]
    eventually(lambda: all(executions.of(f"finish{number}") for number in range(2)), "both run")
    waiting = [run.spawn(executions.marker(f"finish-wait{number}"), 0) for number in range(4)]
    cluster.workers[1].send(signal.SIGCONT)
    assert worker.stop() == 0
    assert [call.result(timeout=60) for call in [*running, *waiting]] == ["done"] * 6
    assert {call.report().worker for call in running} != {call.report().worker for call in waiting}
    assert all(executions.of(f"finish-wait{number}") == 1 for number in range(4))


def test_a_call_that_does_not_finish_in_time_ends_as_lost(worker: Part, executions: Executions) -> None:
    call = run.spawn(executions.marker("late"), 60)
    eventually(lambda: executions.of("late"), "it runs")
    assert worker.stop() == 0
    with pytest.raises(WorkerLostError, match="READIE_DRAIN_SECONDS"):
        call.result(timeout=60)


def test_a_second_sigterm_is_immediate(worker: Part, executions: Executions) -> None:
    call = run.spawn(executions.marker("at-once"), 60)
    eventually(lambda: executions.of("at-once"), "it runs")
    before = worker.log.count("Warm shutdown")
    worker.send(signal.SIGTERM)
    eventually(lambda: worker.log.count("Warm shutdown") > before, "the first is heard")
    assert worker.stop() == 0
    with pytest.raises(WorkerLostError, match="at once"):
        call.result(timeout=60)


def test_a_worker_that_can_not_reach_redis_still_stops(cluster: Cluster, worker: Part, executions: Executions) -> None:
    call = run.spawn(executions.marker("no-redis"), 1)
    eventually(lambda: executions.of("no-redis"), "it runs")
    cluster.redis.stop()
    eventually(lambda: f"end of call {call.id}: Redis did not take it" in worker.log, "its end can't be stored")
    assert worker.stop() == 0
    cluster.redis.start()
    with pytest.raises(WorkerLostError):
        call.result(timeout=60)


def test_a_killed_workers_queued_calls_start_elsewhere_within_its_lease_and_two_seconds(
    cluster: Cluster, worker: Part, executions: Executions
) -> None:
    worker.send(signal.SIGSTOP)
    calls = [run.spawn(executions.marker(f"queued{number}"), 0) for number in range(2)]
    eventually(lambda: all(call.status().state is CallState.PLACED for call in calls), "both are on its queue")
    worker.kill()
    killed = time.monotonic()
    cluster.workers[1].send(signal.SIGCONT)
    eventually(lambda: all(executions.of(f"queued{number}") for number in range(2)), "both run")
    assert time.monotonic() - killed <= LEASE_SECONDS + 2
    assert [call.result(timeout=60) for call in calls] == ["done"] * 2


def test_restarting_every_worker_under_load_loses_nothing(cluster: Cluster, executions: Executions) -> None:
    first, second = cluster.workers
    if not first.lives:
        first.start()
        cluster.wait_for_worker(first)
    calls = []
    for worker in (first, second):
        names = [f"roll-{worker.name}-{number}" for number in range(12)]
        calls += [(name, run.spawn(executions.marker(name), 0.5)) for name in names]
        eventually(lambda names=names: any(executions.of(name) for name in names), "the load runs")
        assert worker.stop() == 0
        worker.start()
        cluster.wait_for_worker(worker)
    assert [call.result(timeout=60) for _, call in calls] == ["done"] * len(calls)
    assert [executions.of(name) for name, _ in calls] == [1] * len(calls)
