"""What a worker with open sessions does when it is told to stop."""

import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from .sessions import Sessions

_log = logging.getLogger(__name__)


class SessionDrain:
    """Puts off Celery's own shutdown while sessions are open: its consumer would take no more of their calls.

    Args:
        sessions: those of this worker.
        drain: takes this worker out of the placement of new calls.
        again: is told that the worker was asked to stop a second time.
        limit_seconds: how long sessions may stay open; then they end as lost.
    """

    def __init__(
        self, sessions: Sessions, drain: Callable[[], None], again: Callable[[], None], limit_seconds: float
    ) -> None:
        self._sessions = sessions
        self._drain = drain
        self._again = again
        self._limit_seconds = limit_seconds
        self._begun = False
        self._over = False
        self._celerys: Any = None

    def install(self) -> None:
        """Take SIGTERM over from Celery, whose handler is there by now. In the main thread."""
        self._celerys = signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._begun and not self._over:
            # Not our own signal after the wait: a second one is heeded at once.
            self._again()
        if self._begun or not self._sessions.count:
            self._celerys(number, frame)
            return
        self._begun = True
        threading.Thread(target=self._wait, name="drain-sessions", daemon=True).start()

    def _wait(self) -> None:
        _log.warning("stopping: %d sessions may stay for %g s", self._sessions.count, self._limit_seconds)
        self._drain()
        self._sessions.wait_none(self._limit_seconds)
        self._over = True
        os.kill(os.getpid(), signal.SIGTERM)
