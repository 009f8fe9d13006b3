"""How an attempt at a call went, for whoever counts or traces it. None of them can fail or delay the call."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from readie.protocol.call import CallHeader
from readie.protocol.envelope import Failure, Report

_log = logging.getLogger(__name__)


class AttemptEnd(StrEnum):
    """What became of an attempt."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    RETRIED = "retried"
    """It failed, and the call runs again."""
    STALE = "stale"
    """The call had moved on, and the result was dropped."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt, after its end was stored."""

    header: CallHeader
    end: AttemptEnd
    failure: Failure | None
    report: Report
    """Its phases end with ``store``, now."""


Watcher = Callable[[Attempt], None]
"""Is told of each attempt, by the thread that ran it."""


def tell(watchers: Iterable[Watcher], attempt: Attempt) -> None:
    """Tell all of them."""
    for watcher in watchers:
        try:
            watcher(attempt)
        except Exception:
            _log.exception("not counted or traced: call=%s", attempt.header.id)
