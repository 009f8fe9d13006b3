"""A Redis that takes nothing: what is new is refused clearly, what runs goes on and is told when it can be."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from readie import ClusterUnavailableError, ResourceExhaustedError, remote
from readie.protocol import keys
from readie.protocol.envelope import CallState
from tests.chaos.cluster import Cluster
from tests.chaos.executions import Executions
from tests.local_stack import eventually

LEASE_SECONDS = 3
LARGE = 300_000


@pytest.fixture(scope="module")
def running_cluster(new_cluster: Callable[..., Cluster]) -> Cluster:
    """One worker whose lease is short."""
    settings = {"READIE_LEASE_SECONDS": str(LEASE_SECONDS), "READIE_LEASE_RENEWAL_SECONDS": "1"}
    return new_cluster(slots=2, environment=settings)


@pytest.fixture
def cluster(running_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, whose Redis takes everything again after the test."""
    yield running_cluster
    running_cluster.client.config_set("maxmemory", "0")
    running_cluster.client.execute_command("REPLICAOF", "NO", "ONE")


@remote
def run(marker: str, seconds: float, size: int) -> bytes:
    """Show that it runs, take a while, and return much or little."""
    Path(marker).read_text()
    time.sleep(seconds)
    return bytes(size)


def test_out_of_memory_refuses_what_is_new_and_ends_what_runs(cluster: Cluster, executions: Executions) -> None:
    small = run.spawn(executions.marker("oom-small"), LEASE_SECONDS + 2, 1)
    large = run.spawn(executions.marker("oom-large"), 1, LARGE)
    eventually(lambda: executions.of("oom-small") and executions.of("oom-large"), "both run")
    waiting = run.spawn(executions.marker("oom-waits"), 0, 1)
    cluster.client.config_set("maxmemory", "1mb")
    with pytest.raises(ResourceExhaustedError, match="out of memory"):
        run.spawn(executions.marker("oom-new"), 0, 1)
    with pytest.raises(ResourceExhaustedError, match="maxmemory"):
        run.spawn(executions.marker("oom-new-large"), bytes(LARGE), 1)
    # Longer than the lease: the worker does not count as lost. Its small end gives Redis memory back.
    assert small.result(timeout=60) == bytes(1)
    assert waiting.status().state in {CallState.QUEUED, CallState.PLACED, CallState.RUNNING, CallState.DONE}
    assert large.status().state is CallState.RUNNING
    cluster.client.config_set("maxmemory", "0")
    assert large.result(timeout=60) == bytes(LARGE)
    assert waiting.result(timeout=60) == bytes(1)
    assert [executions.of(f"oom-{name}") for name in ("small", "large", "waits", "new")] == [1, 1, 1, 0]


def test_what_waits_is_run_by_a_redis_that_is_out_of_memory(cluster: Cluster, executions: Executions) -> None:
    """Else it would stay so for ever: what the waiting calls hold only goes with them."""
    assert run(executions.marker("oom-before"), 0, 1) == bytes(1), "router and worker are connected to all they need"
    names = [f"oom-queue{number}" for number in range(8)]
    calls = [run.spawn(executions.marker(name), 0.5, 1) for name in names]
    cluster.client.config_set("maxmemory", "1mb")
    assert [call.result(timeout=60) for call in calls] == [bytes(1)] * 8
    assert [executions.of(name) for name in names] == [1] * 8


def test_a_read_only_redis_refuses_what_is_new_and_is_told_the_rest_later(
    cluster: Cluster, executions: Executions
) -> None:
    call = run.spawn(executions.marker("read-only"), 1, 1)
    eventually(lambda: executions.of("read-only"), "it runs")
    cluster.client.execute_command("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(ClusterUnavailableError, match="read-only"):
        run.spawn(executions.marker("read-only-new"), 0, 1)
    eventually(lambda: f"end of call {call.id}: Redis did not take it" in cluster.workers[0].log, "its end is kept")
    cluster.client.execute_command("REPLICAOF", "NO", "ONE")
    assert call.result(timeout=60) == bytes(1)
    assert executions.of("read-only") == 1
    assert cluster.client.exists(keys.PENDING) == 0
