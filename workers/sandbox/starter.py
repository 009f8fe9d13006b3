"""How a call comes to its sandbox."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from readie.protocol.envelope import Pool, Start
from workers.sandbox.connection import ExecutorConnection
from workers.sandbox.created import CreatedPool
from workers.sandbox.quarantine import Quarantine
from workers.sandbox.ready import ReadyPool
from workers.sandbox.refill import Refill
from workers.sandbox.sandbox import Sandbox, SandboxFailedError
from workers.sandbox.traffic import Traffic

PhaseEnded = Callable[[str], None]


class Caller(Protocol):
    """Whoever a sandbox is started for, and may lose interest meanwhile."""

    @property
    def cancelled(self) -> bool:
        """Whether it has."""

    def runs_in(self, sandbox: Sandbox) -> None:
        """Take note of the sandbox, before it starts; may kill it at any time. What this raises ends the start."""


@dataclass(frozen=True)
class Started:
    """A sandbox that is connected, and how it came to be."""

    sandbox: Sandbox
    connection: ExecutorConnection
    start: Start
    checkpoint_id: str | None
    pool: Pool
    fallback: SandboxFailedError | None = None
    """Why it was started cold although a checkpoint was asked for."""


@dataclass
class _Start:
    """One start on its way."""

    caller: Caller
    phase_ended: PhaseEnded
    fallback: SandboxFailedError | None = None


class Starter:
    """Gives a ready sandbox, else restores the checkpoint in a created one, else starts one cold.

    Args:
        images: by checkpoint.
        quarantine: knows the checkpoints that are not to be tried.
        created: where sandboxes come from.
        ready: those that are ready.
        refill: fills both.
        traffic: is told of every start.
        discard: takes a sandbox away.
        failed: is told of each checkpoint that could not be restored.
        timeout_seconds: longest restore or start, and then longest wait for the executor.
    """

    def __init__(
        self,
        images: Mapping[str, Path],
        quarantine: Quarantine,
        *,
        created: CreatedPool,
        ready: ReadyPool,
        refill: Refill,
        traffic: Traffic,
        discard: Callable[[Sandbox], None],
        failed: Callable[[str | None, SandboxFailedError], None],
        timeout_seconds: float,
    ) -> None:
        self._images = images
        self._created = created
        self._ready = ready
        self._refill = refill
        self._traffic = traffic
        self._quarantine = quarantine
        self._discard = discard
        self._failed = failed
        self._timeout_seconds = timeout_seconds

    def start(self, checkpoint_id: str | None, caller: Caller, phase_ended: PhaseEnded) -> Started:
        """Return a sandbox of a checkpoint, or one started cold: for ``None``, or where the checkpoint is of no use.

        ``phase_ended`` is told the end of each phase, ``sandbox``, ``start`` and ``connect``; again for a cold start
        after a restore that failed. Raises ``SandboxFailedError``, and what ``caller`` raises.
        """
        self._traffic.came()
        start = _Start(caller, phase_ended)
        if started := self._take_ready(checkpoint_id, start):
            return started
        with self._traffic.starting():
            if checkpoint_id is None:
                return self._start_cold(start)
            try:
                return self._restore(checkpoint_id, start)
            except SandboxFailedError as error:
                start.fallback = error
                if not caller.cancelled:
                    self._failed(checkpoint_id, error)
            return self._take_ready(None, start) or self._start_cold(start)

    def _take_ready(self, checkpoint_id: str | None, start: _Start) -> Started | None:
        ready = self._ready.take(checkpoint_id)
        self._refill.look()
        if ready is None:
            return None
        self._tell(ready.sandbox, start)
        for phase in ("sandbox", "start", "connect"):
            start.phase_ended(phase)
        kind: Start = "cold" if checkpoint_id is None else "restored"
        return Started(ready.sandbox, ready.connection, kind, checkpoint_id, "ready", start.fallback)

    def _restore(self, checkpoint_id: str, start: _Start) -> Started:
        if (image := self._images.get(checkpoint_id)) is None:
            raise SandboxFailedError("no_image", "this worker has no such checkpoint")
        if why := self._quarantine.why(checkpoint_id, time.monotonic()):
            raise SandboxFailedError("quarantine", why)
        sandbox, pool = self._take_created(start, to_restore=True)
        try:
            sandbox.restore(image, timeout=self._timeout_seconds)
            connection = self._connect(sandbox, start)
        except SandboxFailedError as error:
            self._discard(sandbox)
            start.phase_ended("start")
            if not start.caller.cancelled:
                self._quarantine.failed(checkpoint_id, error.reason, time.monotonic())
            raise
        self._quarantine.succeeded(checkpoint_id)
        return Started(sandbox, connection, "restored", checkpoint_id, pool)

    def _start_cold(self, start: _Start) -> Started:
        sandbox, pool = self._take_created(start, to_restore=False)
        try:
            sandbox.start(timeout=self._timeout_seconds)
            connection = self._connect(sandbox, start)
        except SandboxFailedError:
            self._discard(sandbox)
            raise
        return Started(sandbox, connection, "cold", None, pool, start.fallback)

    def _take_created(self, start: _Start, *, to_restore: bool) -> tuple[Sandbox, Pool]:
        sandbox, made_before = self._created.take(to_restore=to_restore)
        self._refill.look()
        start.phase_ended("sandbox")
        self._tell(sandbox, start)
        return sandbox, "created" if made_before else "none"

    def _tell(self, sandbox: Sandbox, start: _Start) -> None:
        try:
            start.caller.runs_in(sandbox)
        except BaseException:
            self._discard(sandbox)
            raise

    def _connect(self, sandbox: Sandbox, start: _Start) -> ExecutorConnection:
        start.phase_ended("start")
        connection = sandbox.wait_ready(timeout=self._timeout_seconds)
        start.phase_ended("connect")
        return connection
