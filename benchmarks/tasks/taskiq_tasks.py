"""taskiq's. JSON, its default, has no bytes."""

from typing import Any

from taskiq.serializers import PickleSerializer
from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend

from . import URL


def make(url: str) -> Any:
    """Return a task of a broker of its own."""
    backend: RedisAsyncResultBackend[Any] = RedisAsyncResultBackend(url, result_ex_time=3600)
    broker = ListQueueBroker(url, queue_name="taskiq").with_result_backend(backend).with_serializer(PickleSerializer())

    @broker.task(task_name="size")
    async def size(argument: bytes) -> int:
        return len(argument)

    return size


size = make(URL)
broker = size.broker
