"""Network namespaces made ahead of sandboxes."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from workers.sandbox.network.gateway import Slot

logger = logging.getLogger(__name__)

_AHEAD = 8


class Slots:
    """Keeps some namespaces ready, so that no sandbox waits for one. Safe to use from several threads.

    ``_slots`` and ``_closed`` are guarded by ``_changed``.
    """

    def __init__(self, make: Callable[[], Slot]) -> None:
        self._make = make
        self._changed = threading.Condition()
        self._slots: deque[Slot] = deque()
        self._closed = False
        self._thread = threading.Thread(target=self._fill, name="network-slots", daemon=True)
        self._thread.start()

    def take(self) -> Slot:
        """Return a namespace, the caller's to close; ``OSError`` when none is there and none can be made."""
        with self._changed:
            slot = self._slots.popleft() if self._slots else None
            self._changed.notify_all()
        return slot or self._make()

    def close(self) -> None:
        """Give up those that nobody took."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        for slot in self._slots:
            slot.close()
        self._slots.clear()

    def _fill(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or len(self._slots) < _AHEAD)
                if self._closed:
                    return
            try:
                slot = self._make()
            except OSError as error:
                logger.error("no network could be made ahead for a sandbox: %s", error)
                with self._changed:
                    # Until the next one is taken: whoever takes it makes one, and gets the error.
                    self._changed.wait()
                continue
            with self._changed:
                self._slots.append(slot)
