"""Created sandboxes: each fits any checkpoint and a cold start alike."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from workers.sandbox.sandbox import Sandbox

logger = logging.getLogger(__name__)


class Create(Protocol):
    """Makes a sandbox, see there."""

    def __call__(self, *, background: bool, to_restore: bool) -> Sandbox: ...


class CreatedPool:
    """Holds up to ``count`` created sandboxes; ``fill`` adds one.

    ``create`` makes one and ``discard`` takes one away. ``_created`` is guarded by ``_lock``.
    """

    def __init__(self, create: Create, discard: Callable[[Sandbox], None], count: int) -> None:
        self._create = create
        self._discard = discard
        self._count = count
        self._lock = threading.Lock()
        self._created: deque[Sandbox] = deque()

    def __len__(self) -> int:
        with self._lock:
            return len(self._created)

    def ids(self) -> list[str]:
        """Return the ids of those that can be taken."""
        with self._lock:
            return [sandbox.id for sandbox in self._created]

    @property
    def lacks(self) -> bool:
        """Whether there are fewer than there should be."""
        return len(self) < self._count

    def take(self, *, to_restore: bool, background: bool = False) -> tuple[Sandbox, bool]:
        """Return a sandbox and whether it was made before; raises ``SandboxFailedError``.

        It starts in the ``background`` of other sandboxes, or on a level with them.
        """
        while True:
            with self._lock:
                sandbox = self._created.popleft() if self._created else None
            if sandbox is None:
                return self._create(background=background, to_restore=to_restore), False
            if sandbox.alive:
                sandbox.set_background(background)
                sandbox.resume()
                return sandbox, True
            self._bury(sandbox)

    def fill(self) -> None:
        """Make one more; raises ``SandboxFailedError``."""
        sandbox = self._create(background=True, to_restore=True)
        sandbox.pause()
        with self._lock:
            self._created.append(sandbox)

    def drop_dead(self) -> None:
        """Discard those that have ended by themselves."""
        with self._lock:
            dead = [sandbox for sandbox in self._created if not sandbox.alive]
            self._created = deque(sandbox for sandbox in self._created if sandbox not in dead)
        for sandbox in dead:
            self._bury(sandbox)

    def clear(self) -> None:
        """Discard all."""
        with self._lock:
            created, self._created = self._created, deque()
        for sandbox in created:
            self._discard(sandbox)

    def _bury(self, sandbox: Sandbox) -> None:
        logger.warning("created sandbox %s ended by itself", sandbox.id)
        self._discard(sandbox)
