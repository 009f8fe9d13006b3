"""Doing what Redis must hear of, however long it can't be reached or takes nothing."""

import itertools
import logging
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from redis.exceptions import RedisError

from readie.ledger.refusals import about_the_call

_log = logging.getLogger(__name__)

_PAUSES_SECONDS: Final = (0.05, 0.1, 0.2, 0.5)
_LONGEST_PAUSE_SECONDS: Final = 1.0

T = TypeVar("T")


class Patience:
    """Tries again until it works, or the worker can't wait any longer."""

    def __init__(self) -> None:
        self._ended = threading.Event()

    def end(self) -> None:
        """Let what fails from now on fail at once."""
        self._ended.set()

    def repeat(self, act: Callable[[], T], what: str) -> T:
        """Return what ``act`` returns; it may be run many times, also when it was done and only the answer was lost.

        Args:
            act: asks Redis for something.
            what: named in the log.

        Raises:
            RedisError: Redis refuses this for good, or patience has ended.
        """
        for pause in itertools.chain(_PAUSES_SECONDS, itertools.repeat(_LONGEST_PAUSE_SECONDS)):
            try:
                return act()
            except RedisError as error:
                if about_the_call(error) or self._ended.wait(pause):
                    raise
                _log.warning("%s: Redis did not take it: %s; trying again", what, error)
        raise AssertionError
