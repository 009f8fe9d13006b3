"""Connections to Redis, made alike by every process."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from redis import Redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import (
    AskError,
    ClusterCrossSlotError,
    ClusterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry
from redis.sentinel import Sentinel

from .errors import ClusterUnavailableError, ConfigurationError, ReadieError, ResourceExhaustedError
from .sentinel import SCHEME, SentinelUrl

_SENTINEL_SECONDS: Final = 1.0
"""One that does not answer is passed over; there are others."""
_CLUSTER: Final = (
    "this Redis is in cluster mode, in which no step can change the keys of a call, its worker and its session, for "
    "these lie in several slots: use a Redis that is not, and Sentinels (sentinel://) where it must survive its machine"
)


def connect(url: str, *, name: str, timeout_seconds: float = 10.0, retries: int = 3) -> Redis:
    """Return a client (a pool; nothing is connected yet) that answers with bytes.

    Args:
        url: ``redis://``, ``rediss://``, ``unix://`` or ``sentinel://``.
        name: shown in Redis' ``CLIENT LIST``.
        timeout_seconds: for one reply; blocking commands must ask for less.
        retries: of a command whose connection broke or was refused; one that was not answered in time is not repeated.
    """
    options: dict[str, Any] = {
        "client_name": name,
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": min(timeout_seconds, 4.0),
        "socket_keepalive": True,
        "health_check_interval": 25,
        "retry": Retry(ExponentialBackoff(cap=0.5, base=0.05), retries, supported_errors=(RedisConnectionError,)),
    }
    if not url.startswith(SCHEME):
        return Redis.from_url(url, **options)
    watched = SentinelUrl.parse(url)
    patience = {"socket_timeout": _SENTINEL_SECONDS, "socket_connect_timeout": _SENTINEL_SECONDS}
    sentinels: Any = Sentinel(watched.sentinels, sentinel_kwargs=patience)  # type: ignore[no-untyped-call]
    redis: Redis = sentinels.master_for(
        watched.master, db=watched.database, username=watched.user, password=watched.password, **options
    )
    return redis


def refuse_cluster(redis: Redis) -> None:
    """Do nothing but for a Redis in cluster mode; nor for one that can't be asked now, or does not let itself be asked.

    Raises:
        ConfigurationError: it is in cluster mode.
    """
    with contextlib.suppress(RedisError):
        if redis.info("server").get("redis_mode") == "cluster":
            raise ConfigurationError(_CLUSTER)


@contextlib.contextmanager
def reaching_redis(url: str) -> Iterator[None]:
    """Make what goes wrong with Redis inside the block an error for the user.

    Raises:
        ClusterUnavailableError: it can't be reached, or takes nothing at the moment.
        ResourceExhaustedError: it is out of memory.
        ReadieError: it refused something else.
    """
    try:
        yield
    except (RedisConnectionError, RedisTimeoutError) as error:
        reason = str(error).rstrip(".") or type(error).__name__
        raise ClusterUnavailableError(
            f"can't reach Redis at {without_password(url)}: {reason}. Is it running? `readie up` starts one on this "
            "machine; READIE_REDIS_URL or readie.configure(redis_url=...) names another"
        ) from error
    except OutOfMemoryError as error:
        raise ResourceExhaustedError(
            f"Redis at {without_password(url)} is out of memory and takes nothing new until calls end and results go: "
            "try again later, or give it more (maxmemory)"
        ) from error
    except ReadOnlyError as error:
        raise ClusterUnavailableError(
            f"Redis at {without_password(url)} is read-only: it is a replica. Name the one that takes writes, with "
            "READIE_REDIS_URL or readie.configure(redis_url=...)"
        ) from error
    except RedisError as error:
        if isinstance(error, (ClusterCrossSlotError, ClusterDownError, AskError)):
            raise ConfigurationError(_CLUSTER) from error
        if str(error).startswith("MISCONF"):
            raise ClusterUnavailableError(
                f"Redis at {without_password(url)} can't write its files and takes nothing new. Is its disk full?"
            ) from error
        raise ReadieError(f"Redis at {without_password(url)} refused: {error}") from error


def without_password(url: str) -> str:
    """Return the URL as it may be shown to people."""
    parts = urlsplit(url)
    parts = parts._replace(query=re.sub(r"(?i)(password=)[^&]*", r"\1***", parts.query))
    if not parts.password:
        return urlunsplit(parts)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{host}"))
