"""Connections to Redis, made alike by every process."""

from urllib.parse import urlsplit, urlunsplit

from redis import Redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry


def connect(url: str, *, name: str, timeout_seconds: float = 10.0, retries: int = 3) -> Redis:
    """Return a client (a pool; nothing is connected yet) that answers with bytes.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``.
        name: shown in Redis' ``CLIENT LIST``.
        timeout_seconds: for one reply; blocking commands must ask for less.
        retries: of a command whose connection broke or was refused; one that was not answered in time is not repeated.
    """
    return Redis.from_url(
        url,
        client_name=name,
        socket_timeout=timeout_seconds,
        socket_connect_timeout=min(timeout_seconds, 4.0),
        socket_keepalive=True,
        health_check_interval=25,
        retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), retries, supported_errors=(RedisConnectionError,)),
    )


def without_password(url: str) -> str:
    """Return the URL as it may be shown to people."""
    parts = urlsplit(url)
    if not parts.password:
        return url
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{host}"))
