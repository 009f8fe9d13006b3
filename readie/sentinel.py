"""URLs of a Redis that Sentinels watch: ``sentinel://user:password@host:26379,host:26379/0?master=name``.

User, password and database are those of the Redis; the Sentinels themselves are asked without a password.
"""

from typing import Any, Final, NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

SCHEME: Final = "sentinel://"
_PORT: Final = 26379
_MASTER: Final = "mymaster"
_FORM: Final = "a sentinel:// URL is sentinel://[user:password@]host[:port],host[:port]/[database][?master=name]"


class SentinelUrl(NamedTuple):
    """What such a URL says."""

    sentinels: tuple[tuple[str, int], ...]
    """Host and port of each."""
    master: str
    """The name under which they know the Redis."""
    database: int
    user: str | None
    password: str | None

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read a URL.

        Raises:
            ValueError: it is not as it should be.
        """
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        try:
            sentinels = tuple(map(_address, parts.netloc.rpartition("@")[2].split(",")))
            database = int(parts.path.strip("/") or 0)
        except ValueError:
            raise ValueError(_FORM) from None
        if query.keys() - {"master"}:
            raise ValueError(_FORM)
        user, password = (unquote(part) if part else None for part in (parts.username, parts.password))
        return cls(sentinels, query.get("master", [_MASTER])[0], database, user, password)


def broker_url(url: str) -> tuple[str, dict[str, Any]]:
    """Return any Redis URL as Celery and kombu take it, and the transport options that go with it."""
    if not url.startswith(SCHEME):
        return url, {}
    parsed, parts = SentinelUrl.parse(url), urlsplit(url)
    credentials = "".join(parts.netloc.rpartition("@")[:2])
    each = (f"{SCHEME}{credentials}{_bracketed(host)}:{port}/{parsed.database}" for host, port in parsed.sentinels)
    return ";".join(each), {"master_name": parsed.master}


def server_urls(url: str) -> list[str]:
    """Return a URL for each server that any Redis URL names."""
    if not url.startswith(SCHEME):
        return [url]
    return [f"redis://{_bracketed(host)}:{port}" for host, port in SentinelUrl.parse(url).sentinels]


def _address(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(text)
    return parts.hostname, parts.port or _PORT


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
