"""The Redis that a command looks at."""

# ruff: noqa: PLC0415 - see the package's docstring

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redis import Redis


@contextmanager
def cluster_redis(command: str) -> Iterator["Redis"]:
    """Give a connection; what goes wrong with it inside the block is an error for people.

    Raises:
        ConfigurationError: a setting has a value that can't be.
        ReadieError: see :func:`readie.connection.reaching_redis`.
    """
    from readie.connection import connect, reaching_redis
    from readie.stack.settings import load_settings

    url = load_settings().redis_url
    with connect(url, name=f"readie-{command}") as redis, reaching_redis(url):
        yield redis
