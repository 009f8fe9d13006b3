"""What a worker holds in Redis and what it runs stay the same, whatever Redis, the queue or the worker miss."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import readie
from readie import WorkerLostError, remote
from readie.call import Call
from readie.client import default_client
from readie.protocol import keys
from readie.protocol.envelope import CallState
from tests.chaos.cluster import Cluster, RedisFile, node_name
from tests.chaos.executions import Executions
from tests.chaos.wire import Wire
from tests.local_stack import eventually

LEASE_SECONDS = 4


@pytest.fixture(scope="module")
def cluster(new_cluster: Callable[..., Cluster]) -> Cluster:
    """One worker whose lease is short."""
    settings = {"READIE_LEASE_SECONDS": str(LEASE_SECONDS), "READIE_LEASE_RENEWAL_SECONDS": "1"}
    return new_cluster(slots=2, environment=settings)


@remote
def run(marker: str, seconds: float = 0.0, size: int = 1) -> str:
    """Show that it runs, and take a while."""
    Path(marker).read_text()
    time.sleep(seconds)
    return "x" * size


@pytest.fixture(autouse=True)
def worker_is_back(cluster: Cluster) -> Iterator[None]:
    """Begin each test with a worker that serves, whatever the last did to it."""
    readie.configure(redis_url=cluster.redis.url)
    cluster.workers[0].send(signal.SIGCONT)
    cluster.routers[0].send(signal.SIGCONT)
    assert add(1, 2) == 3
    yield
    cluster.workers[0].send(signal.SIGCONT)
    cluster.routers[0].send(signal.SIGCONT)


@remote
def add(left: int, right: int) -> int:
    """Add."""
    return left + right


def state(call: Call[str]) -> CallState:
    """Return a call's state."""
    return call.status().state


def queue(cluster: Cluster) -> str:
    """Return the name of the worker's queue."""
    return keys.worker_queue(node_name(cluster.workers[0]))


@pytest.mark.parametrize("size", [1, 100_000], ids=["small", "large"])
def test_an_end_that_redis_has_lost_is_told_again(cluster: Cluster, executions: Executions, size: int) -> None:
    name = f"end-lost-{size}"
    call = run.spawn(executions.marker(name), 1.5, size)
    eventually(lambda: state(call) is CallState.RUNNING, "it runs")
    file = RedisFile(cluster)
    assert len(call.result(timeout=60)) == size
    file.restore(cluster.redis)
    again = default_client().get_call(call.id)
    assert len(again.result(timeout=60)) == size
    assert executions.of(name) == 1


def test_a_beginning_that_redis_has_lost_is_upheld(cluster: Cluster, executions: Executions) -> None:
    worker = cluster.workers[0]
    worker.send(signal.SIGSTOP)
    call = run.spawn(executions.marker("begin-lost"), 6)
    eventually(lambda: state(call) is CallState.PLACED, "it is placed")
    file = RedisFile(cluster)
    worker.send(signal.SIGCONT)
    eventually(lambda: executions.of("begin-lost"), "it runs")
    file.restore(cluster.redis)
    # The message is on the worker's queue again.
    assert call.result(timeout=60) == "x"
    assert executions.of("begin-lost") == 1
    assert call.report().attempt == 1


def test_a_placement_that_redis_has_lost_is_upheld(cluster: Cluster, executions: Executions, tmp_path: Path) -> None:
    router = cluster.routers[0]
    router.send(signal.SIGSTOP)
    call = run.spawn(executions.marker("place-lost"), 6)
    file = RedisFile(cluster)
    router.send(signal.SIGCONT)
    eventually(lambda: executions.of("place-lost"), "it runs")
    file.restore(cluster.redis)
    assert call.result(timeout=60) == "x"
    assert executions.of("place-lost") == 1


def place_two(cluster: Cluster, executions: Executions, name: str) -> list[Call[str]]:
    """Place two calls on a paused worker: one message waits on its connection, the other on its queue."""
    cluster.workers[0].send(signal.SIGSTOP)
    calls = [run.spawn(executions.marker(f"{name}{number}"), 0.5) for number in range(2)]
    eventually(lambda: all(state(call) is CallState.PLACED for call in calls), "both are placed")
    assert cluster.client.llen(queue(cluster)) == 1
    return calls


def test_a_message_that_was_lost_between_queue_and_worker_is_sent_again(
    cluster: Cluster, executions: Executions
) -> None:
    calls = place_two(cluster, executions, "message-lost")
    assert cluster.client.rpop(queue(cluster))
    cluster.workers[0].send(signal.SIGCONT)
    assert [call.result(timeout=60) for call in calls] == ["x", "x"]
    assert [executions.of(f"message-lost{number}") for number in range(2)] == [1, 1]
    assert sorted(call.report().attempt for call in calls) == [1, 2]


def test_a_message_that_comes_twice_runs_once(cluster: Cluster, executions: Executions) -> None:
    calls = place_two(cluster, executions, "twice")
    cluster.client.lpush(queue(cluster), *2 * cluster.client.lrange(queue(cluster), 0, -1))
    cluster.workers[0].send(signal.SIGCONT)
    assert [call.result(timeout=60) for call in calls] == ["x", "x"]
    eventually(lambda: cluster.client.llen(queue(cluster)) == 0, "the other messages are taken")
    assert [executions.of(f"twice{number}") for number in range(2)] == [1, 1]


def test_a_broken_connection_doubles_nothing(cluster: Cluster, executions: Executions) -> None:
    names = [f"cut{number}" for number in range(6)]
    calls = [run.spawn(executions.marker(name), 0.3) for name in names]
    while not all(state(call).ended for call in calls):
        for connection in cluster.client.client_list():
            if connection["name"].startswith("readie-"):
                cluster.client.client_kill_filter(_id=connection["id"])
        time.sleep(0.2)
    assert [call.result(timeout=60) for call in calls] == ["x"] * 6
    assert [executions.of(name) for name in names] == [1] * 6


def test_a_worker_that_does_not_hear_its_queue_connects_anew(
    data_folder: Path, executions: Executions, tmp_path: Path, new_cluster: Callable[..., Cluster]
) -> None:
    with Wire() as wire:
        cluster = new_cluster(wire=wire, environment={"READIE_LEASE_RENEWAL_SECONDS": "1"})
        worker = cluster.workers[0]
        assert run(executions.marker("heard")) == "x"
        # As when the other end of the connection is gone and nothing says so.
        assert wire.silence(b"BRPOP") > 0
        assert run(executions.marker("deaf")) == "x"
        assert "does not hear its queue" in worker.log


def test_a_paused_worker_ends_what_has_moved_on_and_joins_again(cluster: Cluster, executions: Executions) -> None:
    worker = cluster.workers[0]
    begun = run.spawn(executions.marker("paused-begun"), 40)
    eventually(lambda: executions.of("paused-begun"), "it runs")
    worker.send(signal.SIGSTOP)
    with pytest.raises(WorkerLostError):
        begun.result(timeout=60)
    worker.send(signal.SIGCONT)
    eventually(lambda: f"call={begun.id}: attempt 1 has moved on, its sandbox is killed" in worker.log, "it is ended")
    assert run(executions.marker("after-pause")) == "x"
    assert state(begun) is CallState.FAILED


def test_a_killed_workers_calls_run_elsewhere_or_end_as_lost(
    cluster: Cluster, executions: Executions, new_cluster: Callable[..., Cluster]
) -> None:
    worker = cluster.workers[0]
    begun = [run.spawn(executions.marker(f"killed{number}"), 30) for number in range(2)]
    eventually(lambda: all(executions.of(f"killed{number}") for number in range(2)), "they run")
    waiting = run.spawn(executions.marker("killed-waiting"))
    worker.kill()
    worker.start()
    for call in begun:
        with pytest.raises(WorkerLostError, match="may have run in part"):
            call.result(timeout=60)
    assert waiting.result(timeout=60) == "x"
    assert executions.of("killed-waiting") == 1
