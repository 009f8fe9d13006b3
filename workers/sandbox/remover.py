"""Taking sandboxes away, off the path of any call."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from workers.sandbox.sandbox import Sandbox

logger = logging.getLogger(__name__)

_MAX_BACKLOG = 64


class Remover:
    """Destroys sandboxes in a thread of its own; ``gone`` is told each that was.

    At most 64 wait for it; then ``remove`` does, so that nothing piles up faster than it goes.
    """

    def __init__(self, gone: Callable[[Sandbox], None]) -> None:
        self._gone = gone
        self._backlog: queue.Queue[Sandbox | None] = queue.Queue(_MAX_BACKLOG)
        self._thread = threading.Thread(target=self._work, name="sandbox-remover", daemon=True)
        self._thread.start()

    def remove(self, sandbox: Sandbox) -> None:
        """Kill ``sandbox`` now and remove what is left of it soon."""
        sandbox.kill()
        self._backlog.put(sandbox)

    def close(self) -> None:
        """Return when all that was given is removed."""
        self._backlog.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (sandbox := self._backlog.get()) is not None:
            try:
                sandbox.destroy()
            except Exception:
                # Its folder stays, and is found by the next worker that is started here.
                logger.exception("sandbox %s could not be removed whole", sandbox.id)
            self._gone(sandbox)
