"""The router's part of a call's trace. Imported only where ``READIE_TRACING`` is set."""

from opentelemetry.trace import SpanKind

from readie.monitoring.tracing import context_of, exporter, nanoseconds_at, tracer
from readie.protocol.call import CallHeader


class RouterTraces:
    """Writes spans after the fact: routing does not wait for them."""

    def __init__(self) -> None:
        self._tracer = tracer("readie-router", exporter())

    def placed(self, header: CallHeader, seconds: float) -> None:
        """Write that a call was placed, which took ``seconds`` until now."""
        if header.traceparent is None:
            return
        placement = header.placement
        assert placement is not None
        attributes: dict[str, str | int] = {
            "readie.call": header.id,
            "readie.worker": placement.worker,
            "readie.checkpoint": placement.checkpoint_id or "none",
            "readie.attempt": placement.attempt,
            "readie.reason": placement.reason,
        }
        span = self._tracer.start_span(
            "route",
            context_of(header.traceparent),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            start_time=nanoseconds_at(seconds),
        )
        span.end()
