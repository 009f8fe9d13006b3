"""What a worker counts, and how many of everything it has."""

from collections.abc import Iterator
from typing import Final, Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import readie
from readie.monitoring.endpoint import SECONDS
from readie.protocol.envelope import Report

from .inspection import Inspection
from .sandbox.sandbox import SandboxFailedError
from .watching import Attempt

_RATIOS: Final = (0.1, 0.2, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
_NONE: Final = "none"
_POOLS: Final = {"ready": {"ready": "hit"}, "created": {"ready": "miss", "created": "hit"}}
_ALL_MISSED: Final = {"ready": "miss", "created": "miss"}

Recovered = Literal["end_told_again", "stale_attempt_killed", "message_lost", "call_lost", "queue_not_heard"]
"""What a worker puts right."""


class WorkerMetrics:
    """Counters and histograms of one worker. Cheap, and safe to use from several threads.

    Args:
        registry: where they can be read.
        flavor: this worker's.
    """

    def __init__(self, registry: CollectorRegistry, flavor: str) -> None:
        self._flavor = flavor
        self._attempts = Counter(
            "readie_worker_attempts",
            "Attempts at calls by their end; `code` says why one has no value",
            ["flavor", "end", "code"],
            registry=registry,
        )
        self._phases = Histogram(
            "readie_worker_phase_seconds",
            "Phases of attempts, as in their reports: queue, route, deliver, packages, sandbox, start, connect, load, "
            "execute, dump, store",
            ["flavor", "phase", "start"],
            buckets=SECONDS,
            registry=registry,
        )
        self._starts = Counter(
            "readie_worker_starts",
            "Sandboxes that attempts got: `start` is warm, restored or cold; `pool` is where it came from, "
            "ready, created, session, or none when it was made for the call",
            ["flavor", "start", "pool"],
            registry=registry,
        )
        self._pools = Counter(
            "readie_worker_pool_takes",
            "Looks into the pools of ready and of created sandboxes: `result` is hit or miss",
            ["flavor", "pool", "result"],
            registry=registry,
        )
        self._predictions = Histogram(
            "readie_worker_start_actual_to_predicted_ratio",
            "Seconds until the function's first line, divided by what the router had predicted",
            ["flavor", "start"],
            buckets=_RATIOS,
            registry=registry,
        )
        self._restore_failures = Counter(
            "readie_worker_restore_failures",
            "Restores for a call or ahead of one that failed or were not tried; `reason` is the step",
            ["flavor", "checkpoint", "reason"],
            registry=registry,
        )
        self._stale_messages = Counter(
            "readie_worker_stale_messages",
            "Messages of attempts that had moved on or were begun already",
            ["flavor"],
            registry=registry,
        )
        self._dead_letters = Counter(
            "readie_worker_dead_letters",
            "Messages on this worker's queues that could not be read",
            ["flavor"],
            registry=registry,
        )
        self._recoveries = Counter(
            "readie_worker_recoveries",
            "What this worker put right between its calls and their records",
            ["flavor", "action"],
            registry=registry,
        )
        # A counter that is not there before it first counts seems never to have grown.
        self._stale_messages.labels(flavor)
        self._dead_letters.labels(flavor)
        for action in get_args(Recovered):
            self._recoveries.labels(flavor, action)

    def attempt(self, attempt: Attempt) -> None:
        """Count an attempt that has ended."""
        report, code = attempt.report, attempt.failure.code.value if attempt.failure else _NONE
        start = report.start or _NONE
        self._attempts.labels(self._flavor, attempt.end, code).inc()
        for phase, seconds in report.phases.items():
            self._phases.labels(self._flavor, phase, start).observe(max(0.0, seconds))
        if report.start is None:
            return
        self._starts.labels(self._flavor, start, report.pool or "session").inc()
        if report.pool is not None:
            for pool, result in _POOLS.get(report.pool, _ALL_MISSED).items():
                self._pools.labels(self._flavor, pool, result).inc()
        self._compare(report)

    def _compare(self, report: Report) -> None:
        # What fell back to a cold start, or did not come to its first line, was not predicted.
        if report.predicted_seconds and report.fallback is None and "execute" in report.phases:
            ratio = report.start_seconds / report.predicted_seconds
            self._predictions.labels(self._flavor, report.start).observe(ratio)

    def restore_failed(self, checkpoint_id: str | None, error: SandboxFailedError) -> None:
        """Count a sandbox that could not be started as it should."""
        self._restore_failures.labels(self._flavor, checkpoint_id or _NONE, error.step).inc()

    def stale_message(self) -> None:
        """Count a message that means nothing any more."""
        self._stale_messages.labels(self._flavor).inc()

    def dead_letter(self) -> None:
        """Count an unreadable message."""
        self._dead_letters.labels(self._flavor).inc()

    def recovered(self, action: Recovered) -> None:
        """Count what was put right."""
        self._recoveries.labels(self._flavor, action).inc()


class WorkerGauges(Collector):
    """How many sandboxes, slots and sessions there are, and of what size: counted at each scrape.

    Args:
        inspection: counts them.
        memory_bytes: what all sandboxes may hold together.
        name: this worker's.
        runsc_version: what makes its sandboxes.
    """

    def __init__(self, inspection: Inspection, memory_bytes: int, *, name: str, runsc_version: str) -> None:
        self._inspection = inspection
        self._memory_bytes = memory_bytes
        self._name = name
        self._runsc_version = runsc_version

    def collect(self) -> Iterator[Metric]:
        """Yield them."""
        pools, checkpoints = self._inspection.pools(), self._inspection.checkpoints()
        flavor: str = checkpoints["flavor"]
        states = dict.fromkeys(("busy", "idle", "ready", "created"), 0)
        for sandbox in self._inspection.sandboxes():
            states[sandbox["state"]] += 1
        yield _gauge(
            "sandboxes", "Sandboxes: busy with a call, idle in a session, ready or created", flavor, state=states
        )
        ready = {checkpoint_id if checkpoint_id != "cold" else _NONE: n for checkpoint_id, n in pools["ready"].items()}
        yield _gauge("ready_sandboxes", "Sandboxes that wait for a call, by checkpoint", flavor, checkpoint=ready)
        plain = {
            "slots": ("Calls that can run at once", pools["slots"]),
            "sessions": ("Sessions that are open here", pools["sessions"]),
            "memory_limit_bytes": ("What all sandboxes may hold together", self._memory_bytes),
            "ready_memory_bytes": ("What the ready sandboxes hold", pools["ready_bytes"]),
            "ready_memory_limit_bytes": ("What the ready sandboxes may hold", pools["ready_bytes_limit"]),
        }
        for name, (text, value) in plain.items():
            gauge = GaugeMetricFamily(f"readie_worker_{name}", text, labels=["flavor"])
            gauge.add_metric([flavor], value)
            yield gauge
        about = {
            "flavor": flavor,
            "worker": self._name,
            "generation": checkpoints["generation"] or _NONE,
            "version": readie.__version__,
            "runsc_version": self._runsc_version,
        }
        text = "1; the labels say what the worker is and serves"
        info = GaugeMetricFamily("readie_worker_info", text, labels=list(about))
        info.add_metric(list(about.values()), 1)
        yield info


def _gauge(name: str, text: str, flavor: str, **by: dict[str, int]) -> GaugeMetricFamily:
    ((label, values),) = by.items()
    gauge = GaugeMetricFamily(f"readie_worker_{name}", text, labels=["flavor", label])
    for value, count in values.items():
        gauge.add_metric([flavor, value], count)
    return gauge
