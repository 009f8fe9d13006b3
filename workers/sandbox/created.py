"""Created sandboxes kept ready: a created one fits any checkpoint and a cold start alike."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator

from workers.sandbox.sandbox import Sandbox, SandboxFailedError

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 5.0
_HOLD_BACK_SECONDS = 1.0


class CreatedPool:
    """Keeps ``count`` created sandboxes, refilled by a thread of its own.

    ``create`` makes one and ``discard`` takes one away. While a call's sandbox starts, no other is made: the call needs
    the cores. All state is guarded by ``_changed``.
    """

    def __init__(self, create: Callable[[], Sandbox], discard: Callable[[Sandbox], None], count: int) -> None:
        self._create = create
        self._discard = discard
        self._count = count
        self._changed = threading.Condition()
        self._ready: deque[Sandbox] = deque()
        self._starting = 0
        self._closed = False
        self._thread = threading.Thread(target=self._refill, name="created-sandboxes", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        with self._changed:
            return len(self._ready)

    def take(self) -> Sandbox:
        """Return a created sandbox, a new one when none is ready; raises ``SandboxFailedError``."""
        while True:
            with self._changed:
                if not self._ready:
                    break
                sandbox = self._ready.popleft()
                self._changed.notify_all()
            if sandbox.alive:
                return sandbox
            logger.warning("created sandbox %s ended by itself", sandbox.id)
            self._discard(sandbox)
        return self._create()

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Hold the refill back while a sandbox that was taken starts, though never for long."""
        with self._changed:
            self._starting += 1
        try:
            yield
        finally:
            with self._changed:
                self._starting -= 1
                self._changed.notify_all()

    def wait_full(self, timeout: float) -> bool:
        """Return whether all ``count`` are ready within ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._ready) >= self._count, timeout)

    def close(self) -> None:
        """Stop refilling and discard what is ready."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        while self._ready:
            self._discard(self._ready.popleft())

    def _refill(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or len(self._ready) < self._count)
                self._changed.wait_for(lambda: self._closed or not self._starting, _HOLD_BACK_SECONDS)
                if self._closed:
                    return
            try:
                sandbox = self._create()
            except SandboxFailedError as error:
                logger.error("no sandbox could be created ahead: %s; next attempt in %.0f s", error, _RETRY_SECONDS)
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, _RETRY_SECONDS)
                continue
            with self._changed:
                self._ready.append(sandbox)
                self._changed.notify_all()
