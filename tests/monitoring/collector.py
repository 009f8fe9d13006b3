"""A collector of traces that takes OTLP over HTTP, as the exporters of all languages send it."""

import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Span:
    """What came of one span. Ids are hexadecimal; times are nanoseconds since the epoch."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    start: int
    end: int
    error: str | None
    attributes: dict[str, str]


class Collector:
    """Listens on a loopback port while it is entered."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        """As they came."""
        bodies = self.bodies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                bodies.append(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def environment(self) -> dict[str, str]:
        """What has a process send its spans here, soon."""
        url = f"http://127.0.0.1:{self._server.server_address[1]}"
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "100"}

    def all(self) -> Iterator[Span]:
        """Yield the spans that have come so far."""
        for body in list(self.bodies):
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                about = {each.key: each.value.string_value for each in resource.resource.attributes}
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        yield Span(
                            about["service.name"],
                            span.name,
                            span.trace_id.hex(),
                            span.span_id.hex(),
                            span.parent_span_id.hex(),
                            span.start_time_unix_nano,
                            span.end_time_unix_nano,
                            span.status.message if span.status.code == 2 else None,
                            {each.key: each.value.string_value for each in span.attributes},
                        )

    def spans(self, trace: str) -> dict[str, Span]:
        """Return those of a trace, by name."""
        return {span.name: span for span in self.all() if span.trace == trace}
