"""arq's."""

from typing import Any, ClassVar

from arq.connections import RedisSettings

from . import URL


def settings(url: str) -> RedisSettings:
    """Return how Redis is reached."""
    return RedisSettings.from_dsn(url)


async def size(context: dict[str, Any], argument: bytes) -> int:
    """Return the length."""
    del context
    return len(argument)


class WorkerSettings:
    """Read by arq's worker."""

    functions: ClassVar = [size]
    redis_settings = settings(URL)
    poll_delay = 0.005
    max_jobs = 4
