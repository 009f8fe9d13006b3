"""Fixtures of the router's tests: a real Redis, routers in a thread, or as processes where they are killed."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from redis import Redis
from router_cluster import Client, RouterProcess, Worker

import readie
from readie.client import default_client
from readie.monitoring.endpoint import Monitoring
from readie.protocol import keys
from router.__main__ import build
from router.settings import RouterSettings

# How long an example takes depends on what else this machine does.
settings.register_profile("router", deadline=None)
settings.load_profile("router")


@pytest.fixture
def client(redis: Redis) -> Client:
    """A client of an empty Redis."""
    return Client(redis)


@pytest.fixture
def new_worker(redis: Redis) -> Callable[..., Worker]:
    """Make a worker that has not announced itself."""
    return lambda name="worker1@test", **options: Worker(redis, name, **options)


@pytest.fixture
def router(request: pytest.FixtureRequest, redis: Redis, redis_url: str) -> Iterator[None]:
    """A running router; its parameter, if any, are settings of it."""
    settings = RouterSettings(redis_url=redis_url, **getattr(request, "param", {}))
    service = build(settings, Monitoring(settings.router_lease_seconds))
    thread = threading.Thread(target=service.run, name="router")
    thread.start()
    yield
    service.stop()
    redis.lpush(keys.SUBMIT_QUEUE, keys.WAKE)
    thread.join(timeout=20)
    assert not thread.is_alive(), "the router did not stop"


@pytest.fixture
def configured(redis_url: str) -> Iterator[None]:
    """Let remote functions of this process use the test's Redis."""
    readie.configure(redis_url=redis_url)
    yield
    default_client().close()


@pytest.fixture
def start_router(redis_url: str, tmp_path: Path) -> Iterator[Callable[..., RouterProcess]]:
    """Start router processes; what still runs at the test's end is killed."""
    processes: list[RouterProcess] = []

    def start(**environment: str) -> RouterProcess:
        process = RouterProcess(redis_url, tmp_path / f"router{len(processes)}.log", **environment)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
