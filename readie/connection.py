"""Connections to Redis, made alike by every process."""

import contextlib
import re
import ssl
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from redis import Redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterCrossSlotError,
    ClusterDownError,
    NoPermissionError,
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
CLUSTER: Final = (
    "this Redis is in cluster mode, in which no step can change the keys of a call, its worker and its session, for "
    "these lie in several slots: use a Redis that is not, and Sentinels (sentinel://) where it must survive its machine"
)

_CERTIFICATES: Final = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}


_SIGNS_OF_TLS: Final = ("ssl", "SSL", "closed", "reset")
"""In what is said of a connection that was refused over certificates, which the other side often just ends."""


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


def in_cluster_mode(redis: Redis) -> bool:
    """Ask a Redis; every user may. In a cluster of one node all commands would be taken, and no client ever be told."""
    said: Any = redis.execute_command("HELLO")  # type: ignore[no-untyped-call]
    mode = said if isinstance(said, dict) else dict(zip(said[::2], said[1::2], strict=True))
    return bool(mode[b"mode"] == b"cluster")


def refuse_cluster(redis: Redis) -> None:
    """Do nothing but for a Redis in cluster mode; nor for one that can't be asked now.

    Raises:
        ConfigurationError: it is in cluster mode.
    """
    with contextlib.suppress(RedisError):
        if in_cluster_mode(redis):
            raise ConfigurationError(CLUSTER)


def without_tls(url: str) -> tuple[str, dict[str, Any] | None]:
    """Return a URL without what it says of TLS, and that as kombu and Celery want to be told; ``None``: no TLS."""
    parts = urlsplit(url)
    if parts.scheme != "rediss":
        return url, None
    query = dict(parse_qsl(parts.query))
    tls: dict[str, Any] = {"ssl_cert_reqs": "required"}
    tls |= {name: query.pop(name) for name in list(query) if name.startswith("ssl_")}
    tls["ssl_cert_reqs"] = _CERTIFICATES[tls["ssl_cert_reqs"]]
    if "ssl_check_hostname" in tls:
        tls["ssl_check_hostname"] = tls["ssl_check_hostname"].lower() not in ("0", "f", "false", "n", "no")
    return urlunsplit(parts._replace(query=urlencode(query))), tls


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
        if isinstance(error, AuthenticationError):
            raise ClusterUnavailableError(
                f"Redis at {without_password(url)} does not let this user in: {reason}. Name a user and password in "
                "the URL (redis://USER:PASSWORD@HOST:PORT/0)"
            ) from error
        if url.startswith("rediss://") and any(sign in reason for sign in _SIGNS_OF_TLS):
            raise ClusterUnavailableError(
                f"can't reach Redis at {without_password(url)}: {reason}. In the URL, ssl_ca_certs must name the "
                "authority of Redis' certificate, which must be for this host's name, and ssl_certfile and ssl_keyfile "
                "a certificate of this client where Redis asks for one (docs/deploy.md)"
            ) from error
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
    except NoPermissionError as error:
        raise ReadieError(
            f"Redis at {without_password(url)} does not let this user do that: {error}. Calls and sessions of other "
            "users are out of reach, and so is what only other roles need (`readie acl`)"
        ) from error
    except RedisError as error:
        if isinstance(error, (ClusterCrossSlotError, ClusterDownError, AskError)):
            raise ConfigurationError(CLUSTER) from error
        if str(error).startswith("MISCONF"):
            raise ClusterUnavailableError(
                f"Redis at {without_password(url)} can't write its files and takes nothing new. Is its disk full?"
            ) from error
        raise ReadieError(f"Redis at {without_password(url)} refused: {error}") from error


def without_password(url: str) -> str:
    """Return the URL as it may be shown to people."""
    parts = urlsplit(url)
    # Names of certificates' files are longer than all the rest.
    query = "" if parts.scheme == "rediss" else re.sub(r"(?i)(password=)[^&]*", r"\1***", parts.query)
    parts = parts._replace(query=query)
    if not parts.password:
        return urlunsplit(parts)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{host}"))
