"""A worker that runs in this process, to look at from within, with a Redis of its own and no Celery or router.

Its calls are claimed, run and ended as any worker's; only who places them is missing.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from redis import Redis

from readie.ledger.holding import HoldingLedger
from readie.ledger.result import decode_result
from readie.ledger.routing import Addressed, Placed, RoutingLedger
from readie.ledger.sessions import SessionLedger
from readie.ledger.streams import StreamLedger
from readie.pickling import dump_call
from readie.protocol import keys
from readie.protocol.announcement import Announcement
from readie.protocol.call import CallHeader, Placement
from readie.protocol.envelope import Report
from readie.protocol.reading import PlacedReader
from readie.protocol.signing import Keyring
from workers.control import RunningCalls
from workers.ends import Ends
from workers.patience import Patience
from workers.preflight import check_machine
from workers.runner import Runner
from workers.sandbox.supply import SandboxSupply
from workers.serving import Serving
from workers.sessions import Sessions
from workers.settings import WorkerSettings

from .cluster import redis_server


class CallFailedError(Exception):
    """A call ended without a value."""


@dataclass(frozen=True)
class Ran:
    """How a call went: seconds from its claim until its result was stored, and its report."""

    seconds: float
    report: Report


class OneWorker:
    """A worker of the current generation of ``READIE_DATA``; ``settings`` are those of ``WorkerSettings``."""

    def __init__(self, **settings: Any) -> None:
        self.run_dir = Path(f"/run/readie-benchmark-{os.getpid()}-{uuid.uuid4().hex[:4]}")
        self.settings = WorkerSettings(**settings)
        self._stack = contextlib.ExitStack()
        self.redis = Redis.from_url(self._stack.enter_context(redis_server()))
        self._ledger = RoutingLedger(self.redis)
        self.serving = Serving(self.settings, check_machine(self.settings.runsc), self.run_dir)
        announcement = Announcement(
            name="worker@benchmark",
            incarnation="1",
            pid=os.getpid(),
            slots=1000,
            flavor=self.settings.flavor,
            python=self.serving.served.filesystem.python_version,
            runsc_version="",
            generation=self.serving.served.generation_id,
            catalogue=None,
        )
        self._announcement = announcement
        self._ledger.announce(announcement, lease_seconds=100_000)
        read = PlacedReader(Keyring(), max_age_seconds=0)
        self._sessions = Sessions(SessionLedger(self.redis), self.settings.flavor, read)
        patience = Patience()
        self._runner = Runner(
            StreamLedger(self.redis),
            self.serving,
            RunningCalls(),
            self._sessions,
            ends=Ends(HoldingLedger(self.redis), patience, worker=announcement.name, incarnation="1", keep_seconds=60),
            patience=patience,
            keyring=Keyring(),
            worker=announcement.name,
            max_result_bytes=self.settings.max_result_bytes,
            log_bytes=self.settings.log_bytes,
        )

    @property
    def supply(self) -> SandboxSupply:
        """Its sandboxes."""
        with self.serving.use() as stage:
            return stage.supply

    def wait_full(self) -> None:
        """Return when all that is made ahead is there."""
        if not self.supply.wait_full(300):
            raise TimeoutError("the worker's pools are not full after five minutes")

    def image(self, checkpoint_id: str) -> Path:
        """Return the folder of a checkpoint's image."""
        return self.serving.served.images[checkpoint_id]

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...], checkpoint_id: str | None) -> Ran:
        """Run a call in a sandbox of its own; raises ``CallFailedError``."""
        payload = dump_call(function, arguments, {})
        header = CallHeader(
            protocol=1,
            id=uuid.uuid4().hex,
            name=function.__name__,
            python=self._announcement.python,
            payload_bytes=len(payload),
            payload_by_reference=False,
            placement=Placement(
                worker=self._announcement.name,
                incarnation=self._announcement.incarnation,
                attempt=1,
                checkpoint_id=checkpoint_id,
                reason="benchmark",
            ),
        )
        self._ledger.submit(header.id, "message", "nobody")
        (placed,) = self._ledger.place_all("benchmark", [Addressed(header, "message", b"")])
        if not isinstance(placed, Placed):
            raise TypeError(f"the call was not placed: {placed}")
        began = time.perf_counter()
        outcome = self._runner.run(header, payload)
        seconds = time.perf_counter() - began
        if outcome is not None and (failure := outcome.failure) is not None:
            raise CallFailedError(f"{function.__name__} failed: {failure.message}\n{failure.traceback}")
        stored = self.redis.get(keys.result(header.id))
        assert isinstance(stored, bytes)
        return Ran(seconds, decode_result(stored).report)

    def forget_queue(self) -> None:
        """Drop the messages that no Celery takes off the worker's queue."""
        self.redis.delete(keys.worker_queue(self._announcement.name), keys.SUBMIT_QUEUE)

    def close(self) -> None:
        """End it and remove all of it."""
        self._sessions.close()
        self.serving.close()
        self.redis.close()
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
