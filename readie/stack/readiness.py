"""Whether a part that was started does its work yet. Redis is the witness for all but Flower."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPException
from typing import Final, cast
from urllib.request import urlopen

from pydantic import ValidationError
from redis import Redis
from redis.exceptions import RedisError

from readie.protocol import keys
from readie.protocol.announcement import Announcement

from .programs import Program

_FLOWER_SECONDS: Final = 0.5

ReadyTest = Callable[[int], bool]
"""Takes the pid of the started process."""


def redis_seconds(redis: Redis) -> float:
    """Return the Redis clock: leases end by it."""
    seconds, microseconds = redis.time()
    return seconds + microseconds / 1e6


def live_routers(redis: Redis) -> dict[str, float]:
    """Return when the lease ends (Redis clock, seconds) of each router that has one."""
    entries = redis.zrangebyscore(keys.ROUTERS, redis_seconds(redis), "+inf", withscores=True)
    return {name.decode(): end for name, end in cast("list[tuple[bytes, float]]", entries)}


def announced_workers(redis: Redis) -> Iterator[Announcement]:
    """Yield the entry of each worker whose lease runs; one of a release that writes it otherwise is left out."""
    names = redis.zrangebyscore(keys.WORKERS, redis_seconds(redis), "+inf")
    for name in cast("list[bytes]", names):
        entry = redis.hget(keys.worker(name.decode()), "announcement")
        if entry is None:
            continue
        with suppress(ValidationError):
            yield Announcement.model_validate_json(entry)


class Readiness:
    """Makes the test for each start.

    Args:
        redis: connection to the stack's Redis; its answers must not be long in coming.
        flower_url: where Flower listens, if it is a part.
    """

    def __init__(self, redis: Redis, flower_url: str | None) -> None:
        self._redis = redis
        self._flower_url = flower_url

    def test_for(self, program: Program) -> ReadyTest:
        """Return the test for a start of ``program``; ask for it before the start."""
        if program.role == "redis":
            return self._redis_answers
        if program.role == "worker":
            return self._worker_announced
        if program.role == "flower":
            return self._flower_answers
        before: set[str] = set()
        # A killed router's lease outlives it for a while and says nothing about the next one.
        with suppress(RedisError):
            before = set(live_routers(self._redis))
        return lambda _: self._router_came(before)

    def _flower_answers(self, _pid: int) -> bool:
        try:
            with urlopen(f"{self._flower_url}/healthcheck", timeout=_FLOWER_SECONDS) as answer:  # noqa: S310 - http
                return bool(answer.status == 200)
        except (OSError, HTTPException):
            return False

    def _redis_answers(self, pid: int) -> bool:
        try:
            # The port could have been taken by another Redis.
            return bool(self._redis.ping()) and self._redis.info("server")["process_id"] == pid
        except RedisError:
            return False

    def _router_came(self, before: set[str]) -> bool:
        try:
            return bool(live_routers(self._redis).keys() - before)
        except RedisError:
            return False

    def _worker_announced(self, pid: int) -> bool:
        try:
            return any(worker.pid == pid for worker in announced_workers(self._redis))
        except RedisError:
            return False
