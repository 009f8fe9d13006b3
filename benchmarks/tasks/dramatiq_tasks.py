"""Dramatiq's. JSON, its default, has no bytes."""

from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.encoder import PickleEncoder
from dramatiq.results import Results
from dramatiq.results.backends.redis import RedisBackend

from . import URL


def make(url: str) -> "dramatiq.Actor[Any, Any]":
    """Return an actor of a broker of its own."""
    dramatiq.set_encoder(PickleEncoder())
    broker = RedisBroker(url=url, namespace="dramatiq")
    broker.add_middleware(Results(backend=RedisBackend(url=url)))
    dramatiq.set_broker(broker)

    @dramatiq.actor(broker=broker, store_results=True, max_retries=0)
    def size(argument: bytes) -> int:
        return len(argument)

    return size


size = make(URL)
broker = size.broker
