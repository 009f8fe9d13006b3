"""Fixtures for all tests: a real Redis of their own."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from celery.signals import setup_logging
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from readie.stack.programs import find_redis_server, free_port

ROOT = Path(__file__).parent.parent


@setup_logging.connect  # type: ignore[untyped-decorator]
def leave_logging_to_pytest(**_: object) -> None:
    """Keep a Celery worker in this process from raising the level of all loggers for the tests after it."""


class RedisServer:
    """A redis-server that a test may stop, freeze and start again."""

    def __init__(self, folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self._options = options
        self._environment = {**os.environ, **(environment or {})}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        log = (self._folder / "redis.log").open("ab")
        command = [find_redis_server(None), "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        self.process = subprocess.Popen(
            [*command, "--dir", str(self._folder), *self._options],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        client = Redis.from_url(self.url)
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(RedisConnectionError):
                client.ping()
                break
            assert self.process.poll() is None, f"redis-server ended: {(self._folder / 'redis.log').read_text()}"
            assert time.monotonic() < deadline, "redis-server does not answer"
            time.sleep(0.01)
        client.close()

    def stop(self) -> None:
        """End it at once."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One server for the whole run; ``redis_url`` empties it for each test."""
    server = RedisServer(tmp_path_factory.mktemp("redis"), "--appendonly", "no")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def redis(redis_server: RedisServer) -> Iterator[Redis]:
    """A client of an empty Redis."""
    client = Redis.from_url(redis_server.url)
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def redis_url(redis: Redis, redis_server: RedisServer) -> str:
    """URL of an empty Redis."""
    return redis_server.url


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Flavor and generation."""
    return build_test_data()


def build_test_data() -> Path:
    """Return the folder of a flavor and a generation built from this checkout; reused when nothing has changed."""
    data = ROOT / ".cache" / "test-data"
    environment = {**os.environ, "READIE_DATA": str(data)}
    command = [sys.executable, "-m", "workers.pipeline", "--flavors", str(ROOT / "examples" / "flavors")]
    subprocess.run(command, env=environment, check=True, timeout=900, cwd=ROOT)
    return data
