"""Where a worker process is put together, and its entry in Redis for as long as it lives."""

import logging
import os
import sys
import uuid
from typing import Any

from celery import bootsteps
from celery.signals import setup_logging, worker_shutting_down
from pydantic import ValidationError
from redis import Redis
from redis.exceptions import RedisError

from readie.connection import connect
from readie.ledger import Ledger
from readie.protocol import keys
from readie.protocol.announcement import Announcement
from readie.protocol.catalogue import Catalogue

from . import checkpoints
from .preflight import CannotStartError, check_machine
from .runner import Runner
from .sandbox.host import SandboxHost
from .settings import WorkerSettings

_log = logging.getLogger(__name__)

EXIT_CANNOT_START = 78
"""Exit status of a worker that can't run on this machine as it is: restarting it does not help."""


@setup_logging.connect  # type: ignore[untyped-decorator]
def _log_to_stderr(loglevel: int = logging.INFO, **_: Any) -> None:
    logging.basicConfig(
        level=loglevel, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )


class Lease:
    """This worker's entry in Redis. Renewed on Celery's event loop: a worker whose loop is stuck loses it."""

    def __init__(
        self, redis: Redis, announcement: Announcement, catalogue: Catalogue | None, lease_seconds: int
    ) -> None:
        self._redis = redis
        self._ledger = Ledger(redis)
        self._announcement = announcement
        self._catalogue = catalogue
        self._lease_seconds = lease_seconds

    def renew(self) -> None:
        """Say that this worker lives. A Redis that can't be reached is tried again at the next renewal."""
        try:
            new = self._ledger.announce(self._announcement, self._lease_seconds)
            if new and self._catalogue is not None:
                self._ledger.publish_catalogue(self._catalogue)
        except RedisError as error:
            _log.warning("could not renew this worker's lease: %s", error)

    def drain(self) -> None:
        """Take no more calls; the entry stays while the running ones finish."""
        self._announcement = self._announcement.model_copy(update={"draining": True})
        self.renew()

    def end(self) -> None:
        """Withdraw the entry, and give back the calls this worker had not begun."""
        name, incarnation = self._announcement.name, self._announcement.incarnation
        try:
            self._ledger.withdraw(name)
            for call_id in self._ledger.held_calls(name):
                self._ledger.requeue(call_id, name, incarnation)
        except RedisError as error:
            _log.warning("could not withdraw this worker's entry, its lease will end: %s", error)


class WorkerStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Starts and stops what a worker is besides Celery."""

    requires = ("celery.worker.components:Timer",)

    def __init__(self, worker: Any, **_: Any) -> None:
        try:
            settings = WorkerSettings()
            runsc = check_machine(settings.runsc)
            served = checkpoints.load(settings, runsc.version)
        except (CannotStartError, ValidationError) as error:
            print(f"worker {worker.hostname}: cannot start: {error}", file=sys.stderr)  # noqa: T201
            raise SystemExit(EXIT_CANNOT_START) from None
        self._settings = settings
        self._host = SandboxHost(
            settings.run / worker.hostname.partition("@")[0],
            runsc.executable,
            served.filesystem,
            served.shape,
            created_count=settings.created_sandboxes,
        )
        redis = connect(settings.redis_url, name=f"readie-{worker.hostname}")
        runner = Runner(
            Ledger(redis),
            self._host,
            served.images.get,
            worker=worker.hostname,
            start_timeout_seconds=settings.start_timeout_seconds,
            keep_seconds=settings.result_seconds,
            max_result_bytes=settings.max_result_bytes,
        )
        worker.app.tasks[keys.TASK_NAME].runner = runner
        announcement = Announcement(
            name=worker.hostname,
            incarnation=uuid.uuid4().hex,
            pid=os.getpid(),
            slots=settings.slots,
            flavor=settings.flavor,
            python=served.filesystem.python_version,
            runsc_version=runsc.version,
            generation=served.generation_id,
            catalogue=served.catalogue.digest() if served.catalogue else None,
            checkpoints=tuple(served.images),
        )
        # The event loop must not wait long for a Redis that does not answer.
        lease_redis = connect(settings.redis_url, name=f"readie-{worker.hostname}", timeout_seconds=1.5, retries=0)
        self._lease = Lease(lease_redis, announcement, served.catalogue, settings.lease_seconds)
        self._timer: Any = None

    def start(self, worker: Any) -> None:
        """Announce this worker."""
        worker_shutting_down.connect(self._drain)
        self._lease.renew()
        self._timer = worker.timer.call_repeatedly(self._settings.lease_renewal_seconds, self._lease.renew)

    def stop(self, _worker: Any) -> None:
        """Withdraw it and remove every sandbox; the running calls have ended by now."""
        if self._timer is not None:
            self._timer.cancel()
        self._lease.end()
        self._host.close()

    terminate = stop

    def _drain(self, **_: Any) -> None:
        self._lease.drain()
