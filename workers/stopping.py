"""The way out of a worker that was asked to stop."""

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import Failure

from .control import RunningCalls
from .patience import Patience

_log = logging.getLogger(__name__)


class Stopping:
    """Lets running calls finish within a limit when the worker is asked to stop, and stops them when asked again.

    Args:
        calls: what runs here.
        patience: ends with the limit: what Redis does not take by then is lost.
        limit_seconds: how long calls may go on.
        begin: takes no more calls and gives back those that were not begun; called from this object's thread.
    """

    def __init__(
        self, calls: RunningCalls, patience: Patience, *, limit_seconds: float, begin: Callable[[], None]
    ) -> None:
        self._calls = calls
        self._patience = patience
        self._limit_seconds = limit_seconds
        self._begin = begin
        # The one queue that a signal handler may put into: the thread that it interrupts may hold any lock.
        self._words: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="stopping", daemon=True)
        self._thread.start()

    def asked(self, **_: Any) -> None:
        """Note that the worker was asked to stop; a signal handler."""
        self._words.put(True)

    def close(self) -> None:
        """No call runs any more."""
        self._words.put(False)
        self._thread.join()

    def _work(self) -> None:
        if not self._words.get():
            return
        self._begin()
        try:
            again = self._words.get(timeout=self._limit_seconds)
        except queue.Empty:
            why = f"had not ended {self._limit_seconds:g} s after its worker was asked to stop (READIE_DRAIN_SECONDS)"
        else:
            if not again:
                return
            why = "was running when its worker was asked to stop at once"
        running = self._calls.all()
        _log.warning("stopping %d calls that still run", len(running))
        self._calls.stop_all(
            Failure(code=ErrorCode.WORKER_LOST, message=f"the call {why}; the function may have run in part")
        )
        self._patience.end()
