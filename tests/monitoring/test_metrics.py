"""Routers and workers count what happens, and say whether they live and serve."""

import os
import re
import signal
import time
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

import readie
from readie import remote
from readie.protocol import keys
from readie.protocol.envelope import CallState
from router.metrics import RouterMetrics
from tests.conftest import ROOT
from tests.local_stack import eventually, ready
from tests.monitoring.conftest import Observed
from tests.monitoring.scraping import Scraped, ask
from workers.metrics import WorkerMetrics

pytestmark = pytest.mark.sandbox

PHASES = {"queue", "route", "deliver", "sandbox", "start", "connect", "load", "execute", "dump", "store"}


@remote
def mean(rows: list[float]) -> float:
    import pandas as pd

    return float(pd.Series(rows).mean())


@remote
def fail() -> None:
    raise ValueError("as it should")


@remote
def wait(seconds: float) -> None:
    time.sleep(seconds)


def counted(look: Callable[[], Scraped], name: str, **labels: str) -> Callable[[], float]:
    """Return what tells by how much a value has grown since now. A call is counted just after its result is there."""
    before = look().value(name, **labels)
    return lambda: look().value(name, **labels) - before


def test_a_call_is_counted_by_phase_start_and_pool(observed: Observed) -> None:
    eventually(lambda: ready(observed).get("checkpoint_1"), "a sandbox is restored ahead")
    placed = counted(observed.router, "readie_router_calls_total", flavor="default", outcome="placed")
    routed = counted(observed.router, "readie_router_route_seconds_count", flavor="default")
    phases = {
        phase: counted(observed.worker, "readie_worker_phase_seconds_count", phase=phase, start="restored")
        for phase in PHASES
    }
    starts = counted(observed.worker, "readie_worker_starts_total", start="restored", pool="ready")
    hits = counted(observed.worker, "readie_worker_pool_takes_total", pool="ready", result="hit")
    done = counted(observed.worker, "readie_worker_attempts_total", end="done", code="none")
    assert mean([1.0, 3.0]) == 2.0
    eventually(lambda: done() == 1, "it is counted")
    assert {phase: count() for phase, count in phases.items()} == dict.fromkeys(PHASES, 1)
    assert (starts(), hits(), placed(), routed()) == (1, 1, 1, 1)


def test_cold_warm_and_failed_calls_are_told_apart(observed: Observed) -> None:
    cold = counted(observed.worker, "readie_worker_starts_total", start="cold")
    warm = counted(observed.worker, "readie_worker_starts_total", start="warm", pool="session")
    failed = counted(observed.worker, "readie_worker_attempts_total", end="failed", code="remote")
    predicted = counted(observed.worker, "readie_worker_start_actual_to_predicted_ratio_count", start="cold")
    with readie.session():
        mean.options(disable_optimized_execution=True)([1.0])
        mean([1.0])
        assert observed.worker().value("readie_worker_sessions") == 1
        assert observed.router().value("readie_cluster_sessions") == 1
        with pytest.raises(ValueError, match="as it should"):
            fail()
    eventually(lambda: failed() == 1, "they are counted")
    assert (cold(), warm(), predicted()) == (1, 2, 1)


def test_what_can_not_run_is_counted_by_reason(observed: Observed) -> None:
    refused = counted(observed.router, "readie_router_calls_total", flavor="other", outcome="refused")
    codes = counted(observed.router, "readie_router_refusals_total", code="invalid_request")
    dead = counted(observed.router, "readie_router_dead_letters_total")
    with pytest.raises(readie.InvalidRequestError):
        mean.options(flavor="no-such-flavor")([1.0])
    redis = observed.redis()
    redis.lpush(keys.SUBMIT_QUEUE, b"garbage")
    eventually(lambda: dead() == 1, "the garbage is counted")
    assert (refused(), codes()) == (1, 1)
    assert observed.router().value("readie_cluster_queue_length", queue="dead_letters") == 1
    redis.delete(keys.DEAD_LETTERS)
    redis.close()


def test_gauges_tell_of_what_runs_and_waits(observed: Observed) -> None:
    calls = [wait.spawn(60) for _ in range(3)]
    try:
        eventually(lambda: [call.status().state for call in calls].count(CallState.RUNNING) == 2, "both slots are busy")
        router, worker = observed.router(), observed.worker()
        assert worker.value("readie_worker_sandboxes", state="busy") == 2 == worker.value("readie_worker_slots")
        assert router.value("readie_cluster_busy_slots", flavor="default") == 2
        assert router.value("readie_cluster_waiting_calls", flavor="default") == 1
        assert router.value("readie_cluster_pending_calls") == 3
        reserved, whole = (router.value(f"readie_cluster_{name}") for name in ("reserved_memory_bytes", "memory_bytes"))
        assert 0 < reserved <= whole
    finally:
        for call in calls:
            call.cancel()
    cancelled = {"end": "cancelled", "code": "cancelled"}
    eventually(lambda: observed.worker().value("readie_worker_attempts_total", **cancelled) >= 2, "they are counted")


def documented() -> dict[str, tuple[str, ...]]:
    """Return type, labels and meaning of each metric in ``docs/metrics.md``."""
    text = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(readie_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", text, re.MULTILINE)
    return {name: tuple(rest) for name, *rest in rows}


def test_the_documented_metrics_are_those_that_there_are(observed: Observed) -> None:
    families = {**observed.router().families, **observed.worker().families}
    registry = CollectorRegistry()
    RouterMetrics(registry)
    WorkerMetrics(registry, "default")
    # What has not happened yet has no sample that would show the labels.
    labels: dict[str, tuple[str, ...]] = {}
    for instrument, names in registry._collector_to_names.items():
        labels |= dict.fromkeys(names, tuple(instrument._labelnames))  # type: ignore[attr-defined]
    for name, family in families.items():
        labels.setdefault(name, tuple(family.samples[0].labels) if family.samples else ())
    told = {
        name: (family.type, ", ".join(f"`{label}`" for label in labels[name]), family.help)
        for name, family in families.items()
    }
    assert documented() == told


def test_a_worker_that_drains_lives_but_is_not_ready(observed: Observed) -> None:
    port = observed.port + 1
    assert ask(port, "/healthz") == ask(port, "/readyz") == (200, "ok\n")
    call = wait.spawn(60)
    eventually(lambda: call.status().state is CallState.RUNNING, "it runs")
    before = observed.pid("worker1")
    os.kill(before, signal.SIGTERM)
    eventually(lambda: ask(port, "/readyz")[0] != 200, "it is told to stop")
    assert ask(port, "/readyz") == (503, "it takes no more calls: it was told to stop\n")
    assert ask(port, "/healthz") == (200, "ok\n")
    call.cancel()
    eventually(lambda: observed.pid("worker1") not in {0, before} and ask(port, "/readyz")[0] == 200, "the next one is")
