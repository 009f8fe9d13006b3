"""A stack that tells all that it can."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from readie.stack.programs import free_port
from tests.local_stack import LocalStack, default_client_of
from tests.monitoring.collector import Collector
from tests.monitoring.scraping import Scraped, scrape


def two_ports() -> int:
    """Return a free loopback port whose next one is free as well."""
    while True:
        port = free_port()
        with socket.socket() as second, contextlib.suppress(OSError):
            second.bind(("127.0.0.1", port + 1))
            return port


class Observed(LocalStack):
    """A stack with one router and one worker, whose metrics can be read."""

    port: int

    def router(self) -> Scraped:
        return scrape(self.port)

    def worker(self) -> Scraped:
        return scrape(self.port + 1)


@pytest.fixture(scope="package")
def collector() -> Iterator[Collector]:
    """What takes the spans of all processes."""
    with Collector() as collector:
        yield collector


@pytest.fixture(scope="package")
def observed(tmp_path_factory: pytest.TempPathFactory, data_folder: Path, collector: Collector) -> Iterator[Observed]:
    """A running one, which this process's default client uses."""
    stack = Observed(tmp_path_factory.mktemp("observed"))
    stack.port = two_ports()
    stack.environment |= {
        "READIE_DATA": str(data_folder),
        "READIE_METRICS_ADDRESS": f"127.0.0.1:{stack.port}",
        "READIE_LOG_FORMAT": "json",
        "READIE_LOG_LEVEL": "DEBUG",
        "READIE_TRACING": "true",
        **collector.environment,
    }
    stack.up("--workers", "1", "--slots", "2")
    with default_client_of(stack):
        yield stack
    stack.down()
