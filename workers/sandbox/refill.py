"""Making sandboxes ahead of calls."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from workers.sandbox.created import CreatedPool
from workers.sandbox.ready import ReadyPool
from workers.sandbox.sandbox import SandboxFailedError
from workers.sandbox.traffic import Traffic

logger = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS = 2.0
_LONGEST_RETRY_SECONDS = 60.0
_LOOK_SECONDS = 1.0
"""How long a sandbox that ended by itself may go unnoticed, and a demand that faded unheeded."""


class Refill:
    """Fills both pools in a thread of its own, one sandbox at a time: created ones first, for they serve every call.

    Gives way to ``traffic``. ``changed`` is called, from any thread, when a pool may hold something else than before.
    ``_looked``, ``_full`` and ``_closed`` are guarded by ``_changed``.
    """

    def __init__(self, created: CreatedPool, ready: ReadyPool, traffic: Traffic, changed: Callable[[], None]) -> None:
        self._created = created
        self._ready = ready
        self._traffic = traffic
        self._tell_changed = changed
        self._changed = threading.Condition()
        self._looked = False
        self._full = False
        self._closed = False
        self._retry_seconds = _FIRST_RETRY_SECONDS
        self._thread = threading.Thread(target=self._work, name="refill-sandboxes", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Say that something was taken or asked for."""
        with self._changed:
            self._looked = self._full = False
            self._changed.notify_all()
        self._tell_changed()

    def wait_full(self, timeout: float) -> bool:
        """Return whether both pools hold what they are meant to within ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._full, timeout)

    def stop(self) -> None:
        """Make no more; what is in the making is given up."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._traffic.stop()
        self._ready.abandon()

    def close(self) -> None:
        """Stop, and return when nothing is in the making."""
        self.stop()
        self._thread.join()

    def _work(self) -> None:
        while self._begin():
            self._created.drop_dead()
            if self._ready.drop_dead():
                self._tell_changed()
            if self._created.lacks:
                self._traffic.give_way(to_running=False)
                self._fill(self._created.fill)
            elif self._ready.lacks:
                self._traffic.give_way(to_running=True)
                if not self._created.lacks:
                    self._fill(self._ready.fill)
            else:
                self._rest()

    def _begin(self) -> bool:
        with self._changed:
            self._looked = True
            return not self._closed

    def _fill(self, fill: Callable[[], None]) -> None:
        with self._changed:
            self._full = False
            if self._closed:
                return
        try:
            fill()
        except SandboxFailedError as error:
            logger.error("no sandbox could be created ahead: %s; next attempt in %.0f s", error, self._retry_seconds)
            with self._changed:
                self._changed.wait_for(lambda: self._closed, self._retry_seconds)
            self._retry_seconds = min(2 * self._retry_seconds, _LONGEST_RETRY_SECONDS)
        else:
            self._retry_seconds = _FIRST_RETRY_SECONDS
            self._tell_changed()

    def _rest(self) -> None:
        with self._changed:
            if self._looked and not self._full:
                self._full = True
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed or not self._looked, _LOOK_SECONDS)
