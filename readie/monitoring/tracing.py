"""Traces of calls with OpenTelemetry. Imported only where ``READIE_TRACING`` is set; needs the extra ``otel``."""

import time
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import readie

_HEADER: Final = "traceparent"
_propagator: Final = TraceContextTextMapPropagator()


def exporter() -> SpanProcessor:
    """Return what sends spans to where the usual ``OTEL_EXPORTER_OTLP_*`` variables say, in a thread of its own."""
    return BatchSpanProcessor(OTLPSpanExporter())


def tracer(service: str, processor: SpanProcessor) -> trace.Tracer:
    """Return a tracer whose spans are a service's; what is not yet sent is sent when the process ends."""
    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: service}))
    provider.add_span_processor(processor)
    return provider.get_tracer("readie", readie.__version__)


def traceparent_of(span: trace.Span) -> str | None:
    """Return a span in the way of W3C, for a call's header; ``None`` where nobody records it."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, trace.set_span_in_context(span))
    return carrier.get(_HEADER)


def context_of(traceparent: str) -> Context:
    """Return the context for children of a span of another process."""
    return _propagator.extract({_HEADER: traceparent})


def nanoseconds_at(seconds_ago: float) -> int:
    """Return a moment of the past as spans have it."""
    return time.time_ns() - int(seconds_ago * 1e9)
