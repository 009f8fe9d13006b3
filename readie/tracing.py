"""The client's part of a call's trace: the span of the whole call, below it its submission and the wait."""

import time
from concurrent.futures import Future
from typing import Final

from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from .monitoring.tracing import exporter, nanoseconds_at, traceparent_of, tracer
from .protocol.envelope import Envelope


class ClientTraces:
    """Begins traces, with the spans of the caller's own where there is one.

    They go where the program's own spans go, if it has set a tracer provider; else to a collector.
    """

    def __init__(self) -> None:
        chosen = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
        self._tracer: Final = trace.get_tracer("readie") if chosen else tracer("readie-client", exporter())

    def begin(self, call_id: str, name: str, began: float) -> "CallTrace":
        """Begin the trace of a call; ``began`` is when its submission did (``time.perf_counter()``)."""
        return CallTrace(self._tracer, call_id, name, began)


class CallTrace:
    """One call as its caller sees it."""

    def __init__(self, tracer: trace.Tracer, call_id: str, name: str, began: float) -> None:
        self._tracer = tracer
        at = nanoseconds_at(time.perf_counter() - began)
        attributes = {"readie.call": call_id, "readie.function": name}
        self._span = tracer.start_span(f"call {name}", kind=SpanKind.CLIENT, attributes=attributes, start_time=at)
        self._context = trace.set_span_in_context(self._span)
        self._child = tracer.start_span("submit", self._context, kind=SpanKind.PRODUCER, start_time=at)

    @property
    def traceparent(self) -> str | None:
        """What the call's header carries on."""
        return traceparent_of(self._span)

    def submitted(self, end: "Future[Envelope]") -> None:
        """Begin the wait for the call's end."""
        self._child.end()
        self._child = self._tracer.start_span("wait", self._context)
        end.add_done_callback(self._ended)

    def failed(self, error: BaseException) -> None:
        """End, because the call could not be submitted."""
        self._close(type(error).__name__)

    def _ended(self, end: "Future[Envelope]") -> None:
        if end.cancelled() or end.exception() is not None:
            self._close("the call's end was not heard of")
            return
        envelope = end.result()
        report = envelope.report
        known = {"state": envelope.state.value, "worker": report.worker, "start": report.start}
        self._span.set_attributes({f"readie.{name}": value for name, value in known.items() if value is not None})
        self._close(envelope.failure.code.value if envelope.failure else None)

    def _close(self, trouble: str | None) -> None:
        if trouble is not None:
            self._span.set_status(Status(StatusCode.ERROR, trouble))
        self._child.end()
        self._span.end()
