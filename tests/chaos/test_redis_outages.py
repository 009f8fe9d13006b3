"""Redis goes away and comes back, with or without what it knew; nobody stays behind."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from readie import ClusterUnavailableError, ResultExpiredError, remote
from readie.client import Client
from readie.hints import Hints
from readie.options import Options
from readie.protocol.envelope import CallState
from tests.chaos.cluster import Cluster
from tests.chaos.executions import Executions
from tests.chaos.wire import Wire
from tests.local_stack import eventually

OUTAGE_SECONDS = 12
"""Longer than a lease, and than Celery's result backend waits by itself."""


@pytest.fixture(scope="module")
def cluster(new_cluster: Callable[..., Cluster]) -> Cluster:
    """One worker."""
    return new_cluster(slots=3)


@remote
def run(marker: str, seconds: float = 0.0) -> str:
    """Show that it runs, and take a while."""
    Path(marker).read_text()
    time.sleep(seconds)
    return "done"


def test_nothing_is_lost_while_redis_is_away(cluster: Cluster, executions: Executions) -> None:
    """The worker has a call that ends meanwhile, one that goes on, and a free slot; others wait for it."""
    pids = [part.process.pid for part in cluster.parts if part.process]
    ends = run.spawn(executions.marker("away-ends"), 3)
    goes_on = run.spawn(executions.marker("away-goes-on"), OUTAGE_SECONDS + 4)
    eventually(lambda: executions.of("away-ends") and executions.of("away-goes-on"), "both run")
    # No second copy of their messages, which a broken connection or a timeout would bring back.
    assert cluster.client.keys("*unacked*") == []
    cluster.workers[0].send(signal.SIGSTOP)
    waits = [run.spawn(executions.marker(f"away-waits{number}")) for number in range(3)]
    # While the disk is busy, Redis answers before it writes.
    eventually(lambda: cluster.client.info("persistence")["aof_buffer_length"] == 0, "all is written")
    cluster.redis.stop()
    cluster.workers[0].send(signal.SIGCONT)
    time.sleep(OUTAGE_SECONDS)
    cluster.redis.start()
    assert [call.result(timeout=60) for call in (ends, goes_on, *waits)] == ["done"] * 5
    names = ["away-ends", "away-goes-on", *(f"away-waits{number}" for number in range(3))]
    assert [executions.of(name) for name in names] == [1] * 5
    assert [part.process.pid for part in cluster.parts if part.process and part.lives] == pids


def test_a_frozen_redis_is_an_error_for_who_submits_and_a_pause_for_the_rest(
    cluster: Cluster, executions: Executions
) -> None:
    process = cluster.redis.process
    assert process is not None
    call = run.spawn(executions.marker("frozen"), 1)
    eventually(lambda: executions.of("frozen"), "it runs")
    process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(ClusterUnavailableError):
            run.spawn(executions.marker("frozen-new"))
    finally:
        process.send_signal(signal.SIGCONT)
    assert call.result(timeout=60) == "done"
    assert executions.of("frozen") == 1
    assert run(executions.marker("frozen-after")) == "done"


def test_a_redis_that_has_lost_everything_tells_so_and_serves_on(cluster: Cluster, executions: Executions) -> None:
    call = run.spawn(executions.marker("lost-all"), 60)
    eventually(lambda: call.status().state is CallState.RUNNING, "it runs")
    cluster.client.flushall()
    # As a restart does.
    cluster.client.client_kill_filter(_type="pubsub")
    with pytest.raises(ResultExpiredError, match="started again without its last moments"):
        call.result(timeout=60)
    eventually(lambda: f"call={call.id}: attempt 1 has moved on" in cluster.workers[0].log, "its sandbox is killed")
    cluster.wait_for_worker(cluster.workers[0])
    assert run(executions.marker("after-lost-all")) == "done"


def test_a_client_whose_connection_has_fallen_silent_hears_of_ends(cluster: Cluster, executions: Executions) -> None:
    with Wire() as wire:
        wire.lead_to(cluster.redis.port)
        client = Client(redis_url=wire.url)
        path = executions.marker("silent")

        def work() -> str:
            Path(path).read_text()
            return "done"

        def submit() -> str:
            return str(client.submit(work, (), {}, Options(), lambda: Hints(())).result(timeout=60))

        assert submit() == "done"
        assert wire.silence(b"SUBSCRIBE") == 1
        assert submit() == "done"
        links = eventually(
            lambda: [link for link in wire.links() if b"SUBSCRIBE" in link.sent and not link.silent], "a new one"
        )
        assert len(links) == 1
        client.close()
