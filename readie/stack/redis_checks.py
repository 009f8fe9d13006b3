"""Whether a Redis is fit to be ledger and broker."""

from typing import Any, Final

from redis.exceptions import RedisError

from readie.connection import connect, without_password

from .check import Check, CheckState

_TIMEOUT_SECONDS: Final = 3.0
_OLDEST: Final = (6, 2)
"""The first with BLMOVE, by which a killed router loses nothing."""
_KEEPS_LASTING: Final = ("volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl")


def check_redis(url: str) -> list[Check]:
    """Ask the Redis at ``url`` what it is and how it is set up."""
    redis = connect(url, name="readie-doctor", timeout_seconds=_TIMEOUT_SECONDS, retries=0)
    try:
        info: dict[str, Any] = redis.info()
    except RedisError as error:
        fix = "start it (`readie up` brings one), or set READIE_REDIS_URL to one that runs"
        return [Check("redis", "problem", f"{without_password(url)} can't be reached: {error}", fix)]
    finally:
        redis.close()
    return [_version(info, url), _persistence(info), _eviction(info)]


def _version(info: dict[str, Any], url: str) -> Check:
    version = str(info["redis_version"])
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        return Check("redis", "problem", f"Redis {version} is too old", "use Redis 6.2 or later")
    return Check("redis", "ok", f"Redis {version} at {without_password(url)}")


def _persistence(info: dict[str, Any]) -> Check:
    if info.get("aof_enabled"):
        return Check("redis persistence", "ok", "its append-only file is on")
    return Check(
        "redis persistence",
        "warning",
        "its append-only file is off: when it restarts, calls are lost",
        "start Redis with `--appendonly yes`",
    )


def _eviction(info: dict[str, Any]) -> Check:
    policy = str(info.get("maxmemory_policy", "noeviction"))
    limit = int(info.get("maxmemory", 0))
    if not limit or policy == "noeviction":
        return Check("redis memory", "ok", f"policy {policy}, {'no limit' if not limit else f'limit {limit} bytes'}")
    state: CheckState = "warning" if policy in _KEEPS_LASTING else "problem"
    return Check(
        "redis memory",
        state,
        f"at its limit of {limit} bytes it throws away what it needs (policy {policy})",
        "set `maxmemory-policy noeviction`: a full Redis then refuses new calls and loses none",
    )
