"""One thread for what nobody waits for: printing logs, stopping abandoned streams."""

import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

_CLOSE_SECONDS: Final = 5.0


class Background:
    """Runs tasks one after another. ``_thread`` is guarded by ``_lock``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def start(self) -> None:
        """Be ready for tasks; may be repeated."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="readie-background", daemon=True)
                self._thread.start()

    def put(self, task: Callable[[], None]) -> None:
        """Have a task run after those before it; from any thread, also while an object is being finalized."""
        self._tasks.put(task)

    def close(self) -> None:
        """Finish what there is to do, within some seconds."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._tasks.put(None)
            thread.join(_CLOSE_SECONDS)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            with contextlib.suppress(Exception):
                task()
