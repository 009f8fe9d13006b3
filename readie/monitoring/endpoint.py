"""The HTTP endpoint of a process: ``/metrics``, ``/healthz``, ``/readyz``. Needs the extra ``server``."""

import logging
import socket
import threading
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import choose_encoder

from .health import Health

_log = logging.getLogger(__name__)

_READ_SECONDS: Final = 5.0
"""A client that says nothing for so long is hung up on."""
SECONDS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
"""Buckets of every histogram of seconds: starts take some milliseconds when warm, and seconds when cold."""


class EndpointError(Exception):
    """The address can't be listened on; the text says why."""


class Monitoring:
    """What can be asked of one process, and where.

    Args:
        lease_seconds: how long a renewal of the process' lease in Redis holds.
    """

    def __init__(self, lease_seconds: float) -> None:
        # When each series began is of no use, and would be a fifth of all that is told.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.health = Health(lease_seconds)
        self._endpoint: Endpoint | None = None

    def listen(self, address: str) -> None:
        """Answer on ``HOST:PORT``, or nowhere when that is empty.

        Raises:
            EndpointError: it can't be listened on.
        """
        if address:
            self._endpoint = Endpoint(address, self.registry, self.health)
            _log.info("metrics: url=%s/metrics", self._endpoint.url)

    def close(self) -> None:
        """Answer no more."""
        if self._endpoint is not None:
            self._endpoint.close()


class Endpoint:
    """Serves in threads of its own, until :meth:`close`.

    Args:
        address: ``HOST:PORT``; port 0 takes one that is free.
        registry: what ``/metrics`` shows.
        health: what ``/healthz`` and ``/readyz`` answer.

    Raises:
        EndpointError: something else listens there, or the host is none of this machine's.
    """

    def __init__(self, address: str, registry: CollectorRegistry, health: Health) -> None:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")

        class Handler(_Handler):
            pass

        Handler.registry, Handler.health = registry, health
        server_class = _Server6 if ":" in host else _Server
        try:
            self._server = server_class((host, int(port)), Handler)
        except (OSError, OverflowError) as error:
            raise EndpointError(f"READIE_METRICS_ADDRESS={address} can't be listened on: {error}") from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = str(self._server.server_address[0]), self._server.server_address[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Let whoever hung up go without a word."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    timeout = _READ_SECONDS
    server_version = "readie"
    sys_version = ""
    registry: CollectorRegistry
    health: Health

    def do_GET(self) -> None:
        """Answer."""
        path = self.path.partition("?")[0]
        if path == "/metrics":
            encode, content_type = choose_encoder(self.headers.get("Accept", ""))
            self._answer(200, encode(self.registry), content_type)
        elif path == "/healthz":
            self._tell(self.health.why_dead())
        elif path == "/readyz":
            self._tell(self.health.why_not_ready())
        else:
            self._answer(404, b"/metrics, /healthz and /readyz are here\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class has it
        """Log nothing: health is asked for every few seconds."""

    def _tell(self, trouble: str | None) -> None:
        self._answer(503 if trouble else 200, f"{trouble or 'ok'}\n".encode())

    def _answer(self, status: int, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
