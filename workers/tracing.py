"""The worker's part of a call's trace, and the executor's. Imported only where ``READIE_TRACING`` is set.

An executor has the standard library alone, and no network: its spans are made here, of the times that it has taken.
"""

from typing import Final

from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from readie.monitoring.tracing import context_of, exporter, nanoseconds_at, tracer

from .watching import Attempt

_PHASES: Final = {
    "packages": "install packages",
    "sandbox": "acquire sandbox",
    "start": "start",
    "connect": "connect",
    "load": "load",
    "execute": "execute",
    "dump": "dump",
    "store": "result",
}
"""Phases of an attempt in their order, and the names of their spans."""
_IN_EXECUTOR: Final = frozenset({"load", "execute", "dump"})


class WorkerTraces:
    """Writes spans after the fact: calls do not wait for them."""

    def __init__(self) -> None:
        processor = exporter()
        self._worker = tracer("readie-worker", processor)
        self._executor = tracer("readie-executor", processor)

    def attempt(self, attempt: Attempt) -> None:
        """Write how an attempt went that has just ended."""
        header, report = attempt.header, attempt.report
        if header.traceparent is None:
            return
        phases = {phase: report.phases[phase] for phase in _PHASES if phase in report.phases}
        at = nanoseconds_at(sum(phases.values()))
        known = {
            "readie.call": header.id,
            "readie.worker": report.worker,
            "readie.attempt": report.attempt,
            "readie.end": attempt.end.value,
            "readie.start": report.start,
            "readie.pool": report.pool,
            "readie.checkpoint": report.checkpoint_id,
        }
        run = self._worker.start_span(
            f"run {header.name}",
            context_of(header.traceparent),
            kind=SpanKind.CONSUMER,
            attributes={name: value for name, value in known.items() if value is not None},
            start_time=at,
        )
        if attempt.failure is not None:
            # No more than the code: messages and tracebacks are the user's.
            run.set_status(Status(StatusCode.ERROR, attempt.failure.code.value))
        context = trace.set_span_in_context(run)
        for phase, seconds in phases.items():
            name = "restore" if phase == "start" and report.start == "restored" else _PHASES[phase]
            writer = self._executor if phase in _IN_EXECUTOR else self._worker
            span = writer.start_span(name, context, start_time=at)
            at += int(max(0.0, seconds) * 1e9)
            span.end(at)
        run.end(at)
