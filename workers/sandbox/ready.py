"""Ready sandboxes: restored, repaired and connected before a call asks for them."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from readie.pickling import dump_call
from workers.executor.wire import WireError
from workers.sandbox.connection import ConnectionLostError, ExecutorConnection
from workers.sandbox.demand import Demand
from workers.sandbox.memory import proportional_bytes
from workers.sandbox.processes import processes_under
from workers.sandbox.quarantine import Quarantine
from workers.sandbox.sandbox import Sandbox, SandboxFailedError
from workers.sandbox.stock import Step, next_step
from workers.sandbox.wanted import Held, Source, Wanted

logger = logging.getLogger(__name__)

_WARM_UP_CALL = dump_call(int, (), {})


@dataclass(frozen=True)
class ReadySandbox:
    """A sandbox whose executor waits for a call on ``connection``; ``memory_bytes`` is what it held when made."""

    sandbox: Sandbox
    connection: ExecutorConnection
    memory_bytes: int


@dataclass
class _Shelf:
    """What there is of one source."""

    source: Source
    memory_bytes: int
    sandboxes: deque[ReadySandbox] = field(default_factory=deque)


class ReadyPool:
    """Holds ready sandboxes of the checkpoints in demand, within ``budget_bytes`` of measured memory.

    ``sources`` are by checkpoint, ``None`` being the cold start. ``create`` gives a sandbox to make one from, to
    restore a checkpoint in it or not, and ``discard`` takes it away; ``failed`` is told of each that could not be made.
    ``fill`` is for one thread only. ``_shelves``, ``_wanted`` and ``_making`` are guarded by ``_lock``.
    """

    def __init__(
        self,
        sources: Mapping[str | None, Source],
        budget_bytes: int,
        demand: Demand,
        quarantine: Quarantine,
        *,
        create: Callable[[bool], Sandbox],
        discard: Callable[[Sandbox], None],
        failed: Callable[[str | None, SandboxFailedError], None],
        start_timeout_seconds: float,
    ) -> None:
        self._budget_bytes = budget_bytes
        self._quarantine = quarantine
        self._create = create
        self._discard = discard
        self._failed = failed
        self._start_timeout_seconds = start_timeout_seconds
        self._lock = threading.Lock()
        self._wanted = Wanted(sources, demand)
        self._making: Sandbox | None = None
        self._abandoned = threading.Event()
        self._shelves = {
            checkpoint_id: _Shelf(source, source.memory_bytes) for checkpoint_id, source in sources.items()
        }

    def counts(self) -> dict[str | None, int]:
        """Return how many there are, by checkpoint; those of which there is none are left out."""
        with self._lock:
            return {name: len(shelf.sandboxes) for name, shelf in self._shelves.items() if shelf.sandboxes}

    def ids(self) -> dict[str, str | None]:
        """Return the checkpoint of each, by the sandbox's id."""
        with self._lock:
            return {ready.sandbox.id: name for name, shelf in self._shelves.items() for ready in shelf.sandboxes}

    @property
    def memory_bytes(self) -> int:
        """What all of them hold."""
        with self._lock:
            return sum(ready.memory_bytes for shelf in self._shelves.values() for ready in shelf.sandboxes)

    def take(self, checkpoint_id: str | None) -> ReadySandbox | None:
        """Return a ready sandbox of a checkpoint, which is then the caller's, or ``None``. Counts as demand."""
        with self._lock:
            if (shelf := self._shelves.get(checkpoint_id)) is None:
                return None
            self._wanted.record(checkpoint_id, time.monotonic())
        while True:
            with self._lock:
                ready = shelf.sandboxes.popleft() if shelf.sandboxes else None
            if ready is None:
                return None
            if ready.sandbox.alive:
                ready.sandbox.set_background(False)
                ready.sandbox.resume()
                return ready
            self._bury(checkpoint_id, ready)

    def demand(self, new_ids: Mapping[str, str]) -> Demand:
        """Return what was asked for until now, under the ids that ``new_ids`` gives."""
        with self._lock:
            return self._wanted.demand(new_ids)

    @property
    def lacks(self) -> bool:
        """Whether ``fill`` has something to do."""
        return self._next_step() is not None

    def fill(self) -> None:
        """Make one more, or make room for it; raises ``SandboxFailedError`` when no sandbox can be created.

        A restore that fails is told to the quarantine instead.
        """
        step = self._next_step()
        if step is None:
            return
        if step.action == "make":
            self._make(step.checkpoint_id)
            return
        with self._lock:
            sandboxes = self._shelves[step.checkpoint_id].sandboxes
            ready = sandboxes.popleft() if sandboxes else None
        if ready is not None:
            self._discard(ready.sandbox)

    def drop_dead(self) -> bool:
        """Discard those that have ended by themselves; ``False`` when all live."""
        dead = []
        with self._lock:
            for checkpoint_id, shelf in self._shelves.items():
                dead += [(checkpoint_id, ready) for ready in shelf.sandboxes if not ready.sandbox.alive]
            for checkpoint_id, ready in dead:
                self._shelves[checkpoint_id].sandboxes.remove(ready)
        for checkpoint_id, ready in dead:
            self._bury(checkpoint_id, ready)
        return bool(dead)

    def abandon(self) -> None:
        """Let the sandbox in the making fail, and any after it."""
        with self._lock:
            self._abandoned.set()
            if self._making is not None:
                self._making.kill()

    def clear(self) -> None:
        """Discard all."""
        with self._lock:
            all_ready = [ready for shelf in self._shelves.values() for ready in shelf.sandboxes]
            for shelf in self._shelves.values():
                shelf.sandboxes.clear()
        for ready in all_ready:
            self._discard(ready.sandbox)

    def _next_step(self) -> Step | None:
        now = time.monotonic()
        with self._lock:
            held = {
                checkpoint_id: Held(
                    len(shelf.sandboxes),
                    # The largest, so that what is planned never holds more than the budget.
                    max((ready.memory_bytes for ready in shelf.sandboxes), default=shelf.memory_bytes),
                )
                for checkpoint_id, shelf in self._shelves.items()
            }
            kinds = self._wanted.kinds(held, lambda name: self._quarantine.why(name, now) is None, now)
        return next_step(kinds, self._budget_bytes)

    def _make(self, checkpoint_id: str | None) -> None:
        shelf = self._shelves[checkpoint_id]
        sandbox = self._create(shelf.source.image is not None)
        with self._lock:
            self._making = sandbox
        try:
            connection = self._start(sandbox, shelf.source.image)
        except SandboxFailedError as error:
            self._discard(sandbox)
            if self._abandoned.is_set():
                return
            self._failed(checkpoint_id, error)
            failures = self._quarantine.failed(checkpoint_id, error.reason, time.monotonic())
            # The first of a row says it at length, so that a broken image does not fill the log.
            logger.warning(
                "no ready sandbox of %s, failure %d in a row: %s%s",
                _name(checkpoint_id),
                failures,
                error.reason,
                f"\n{error.log_tail}" if failures == 1 else "",
            )
            return
        finally:
            with self._lock:
                self._making = None
        self._quarantine.succeeded(checkpoint_id)
        ready = ReadySandbox(sandbox, connection, proportional_bytes(processes_under(sandbox.folder)))
        sandbox.pause()
        with self._lock:
            shelf.memory_bytes = ready.memory_bytes
            shelf.sandboxes.append(ready)

    def _start(self, sandbox: Sandbox, image: Path | None) -> ExecutorConnection:
        timeout = self._start_timeout_seconds
        if image is None:
            sandbox.start(timeout=timeout)
        else:
            sandbox.restore(image, timeout=timeout)
        connection = sandbox.wait_ready(timeout=timeout)
        try:
            # The pages that every call touches are then in place: it halves the time of a short first call.
            connection.call("warm-up", "int", [_WARM_UP_CALL], timeout=timeout)
        except (ConnectionLostError, WireError, TimeoutError) as error:
            raise SandboxFailedError("warm_up", f"the executor does not take calls: {error}") from error
        return connection

    def _bury(self, checkpoint_id: str | None, ready: ReadySandbox) -> None:
        logger.warning("ready sandbox %s of %s ended by itself", ready.sandbox.id, _name(checkpoint_id))
        self._discard(ready.sandbox)


def _name(checkpoint_id: str | None) -> str:
    return checkpoint_id or "a cold start"
