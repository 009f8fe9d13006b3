"""The sandboxes a worker gives to its calls: the pools, what fills them, and the way out of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from workers.sandbox.created import CreatedPool
from workers.sandbox.demand import Demand
from workers.sandbox.host import SandboxHost
from workers.sandbox.quarantine import Quarantine
from workers.sandbox.ready import ReadyPool
from workers.sandbox.refill import Refill
from workers.sandbox.sandbox import SandboxFailedError
from workers.sandbox.starter import Caller, PhaseEnded, Started, Starter
from workers.sandbox.traffic import Traffic
from workers.sandbox.wanted import Source


@dataclass(frozen=True)
class Ahead:
    """What is made before it is asked for."""

    created_count: int
    """Created sandboxes to keep."""
    ready_bytes: int
    """Memory that ready sandboxes may hold."""
    demand: Demand
    """What is known of the calls to come."""


class SandboxSupply:
    """Gives calls the sandboxes of ``host``. Safe to use from several threads.

    Args:
        host: makes sandboxes and takes them away; whoever owns it closes this first.
        sources: what there is to start from, by checkpoint; ``None`` is the cold start.
        ahead: what is made before it is asked for.
        changed: called, from any thread and often, when there may be other ready sandboxes than before.
        failed: called, from any thread, with a checkpoint that could not be restored (``None``: a ready sandbox that
            could not be started cold) and why.
        start_timeout_seconds: longest restore or start, and then longest wait for the executor.
    """

    def __init__(
        self,
        host: SandboxHost,
        sources: Mapping[str | None, Source],
        ahead: Ahead,
        *,
        changed: Callable[[], None],
        failed: Callable[[str | None, SandboxFailedError], None],
        start_timeout_seconds: float,
    ) -> None:
        self._host = host
        self._quarantine = quarantine = Quarantine()
        self._created = CreatedPool(host.take, host.discard, ahead.created_count)
        self._ready = ReadyPool(
            sources,
            ahead.ready_bytes,
            ahead.demand,
            quarantine,
            create=lambda to_restore: self._created.take(to_restore=to_restore, background=True)[0],
            discard=host.discard,
            failed=failed,
            start_timeout_seconds=start_timeout_seconds,
        )
        self._traffic = Traffic()
        self._refill = Refill(self._created, self._ready, self._traffic, changed)
        self._starter = Starter(
            {name: source.image for name, source in sources.items() if name is not None and source.image is not None},
            quarantine,
            created=self._created,
            ready=self._ready,
            refill=self._refill,
            traffic=self._traffic,
            discard=host.discard,
            failed=failed,
            timeout_seconds=start_timeout_seconds,
        )

    @property
    def created_count(self) -> int:
        """How many created sandboxes there are to take."""
        return len(self._created)

    @property
    def ready_counts(self) -> dict[str | None, int]:
        """How many ready sandboxes there are, by checkpoint; those of which there is none are left out."""
        return self._ready.counts()

    @property
    def created_ids(self) -> list[str]:
        """The sandboxes that are created and no more."""
        return self._created.ids()

    @property
    def ready_ids(self) -> dict[str, str | None]:
        """The checkpoint of each ready sandbox, by the sandbox's id."""
        return self._ready.ids()

    @property
    def ready_bytes(self) -> int:
        """Memory that the ready sandboxes hold."""
        return self._ready.memory_bytes

    @property
    def quarantined(self) -> list[str]:
        """Checkpoints that are not tried now, because their restores failed."""
        return self._quarantine.names(time.monotonic())

    def start(self, checkpoint_id: str | None, caller: Caller, phase_ended: PhaseEnded) -> Started:
        """Return a connected sandbox, the caller's until ``discard``; see ``Starter.start``."""
        started = self._starter.start(checkpoint_id, caller, phase_ended)
        self._traffic.begun()
        return started

    def discard(self, started: Started) -> None:
        """Kill what ``start`` gave, and remove it in the background."""
        self._host.discard(started.sandbox)
        self._traffic.ended()

    def rest(self) -> None:
        """Say that the call of a sandbox that stays has ended."""
        self._traffic.ended()

    def wake(self) -> None:
        """Say that a sandbox that stayed has a call again."""
        self._traffic.begun()

    def remove(self, started: Started) -> None:
        """Kill a sandbox that rests, and remove it in the background."""
        self._host.discard(started.sandbox)

    def demand(self, new_ids: Mapping[str, str]) -> Demand:
        """Return what was asked for until now, for checkpoints that have the ids in ``new_ids``."""
        return self._ready.demand(new_ids)

    def wait_full(self, timeout: float) -> bool:
        """Return whether all that is to be made ahead is there within ``timeout`` seconds."""
        return self._refill.wait_full(timeout)

    def stop(self) -> None:
        """Make nothing ahead any more; ``start`` goes on working."""
        self._refill.stop()

    def close(self) -> None:
        """Stop, and give up what was made ahead; ``start`` goes on working. May be repeated."""
        self._refill.close()
        self._ready.clear()
        self._created.clear()
