"""What the shell offers for an argument: ids and names that are there now.

Whoever presses TAB waits for it: where Redis does not answer at once, or anything else is wrong, nothing is offered.
"""

# ruff: noqa: PLC0415 - see the package's docstring

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from redis import Redis

Offer = Callable[[str], list[str]]

_ANSWER_SECONDS: Final = 0.4
_ALL_SECONDS: Final = 0.8
_MOST: Final = 100


def _offers(found: "Callable[[Redis, str], Iterable[str]]") -> Offer:
    def offer(incomplete: str) -> list[str]:
        until = time.monotonic() + _ALL_SECONDS
        try:
            with _quick_redis() as redis:
                in_time = itertools.takewhile(lambda _: time.monotonic() < until, found(redis, incomplete))
                matching = (name for name in in_time if name.startswith(incomplete))
                return sorted(set(itertools.islice(matching, _MOST)))
        except Exception:
            return []

    return offer


@contextmanager
def _quick_redis() -> "Iterator[Redis]":
    from readie.connection import connect
    from readie.stack.settings import load_settings

    with connect(
        load_settings().redis_url, name="readie-completion", timeout_seconds=_ANSWER_SECONDS, retries=0
    ) as redis:
        yield redis


def _calls(redis: "Redis", incomplete: str) -> Iterable[str]:
    from readie.ledger.observing import ObservingLedger

    return ObservingLedger(redis).ids(incomplete)


def _pending_calls(redis: "Redis", _incomplete: str) -> Iterable[str]:
    from readie.ledger.observing import ObservingLedger

    return ObservingLedger(redis).pending_ids()


def _sessions(redis: "Redis", _incomplete: str) -> Iterable[str]:
    from readie.ledger.sessions import SessionLedger

    return (record.id for record in SessionLedger(redis).sessions())


def _workers(redis: "Redis", _incomplete: str) -> Iterable[str]:
    from readie.stack.fleet import workers_overview

    return (worker.name for worker in workers_overview(redis))


def _checkpoints(redis: "Redis", _incomplete: str) -> Iterable[str]:
    from readie.stack.fleet import workers_overview

    return (checkpoint_id for worker in workers_overview(redis) for checkpoint_id in worker.checkpoints)


calls = _offers(_calls)
pending_calls = _offers(_pending_calls)
sessions = _offers(_sessions)
workers = _offers(_workers)
checkpoints = _offers(_checkpoints)


def generations(incomplete: str) -> list[str]:
    """Offer the generations of the flavor that the environment names."""
    try:
        from readie.generations.disk import generation_folders, generations_folder
        from readie.settings import FlavorSettings

        settings = FlavorSettings()
        names = [folder.name for folder in generation_folders(generations_folder(settings.data, settings.flavor))]
        return [name for name in ["current", *names] if name.startswith(incomplete)]
    except Exception:
        return []
