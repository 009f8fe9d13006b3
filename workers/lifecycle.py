"""Where a worker process is put together, and its entry in Redis for as long as it lives."""

import logging
import os
import sys
import threading
import uuid
from collections.abc import Callable
from typing import Any, Final

from celery import bootsteps
from celery.signals import setup_logging, worker_shutting_down
from kombu.asynchronous import get_event_loop
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from readie.connection import connect, refuse_cluster
from readie.errors import ConfigurationError
from readie.ledger import Ledger
from readie.ledger.holding import HoldingLedger
from readie.ledger.sessions import SessionLedger
from readie.ledger.streams import StreamLedger
from readie.monitoring.endpoint import EndpointError, Monitoring
from readie.monitoring.health import Health
from readie.monitoring.log_lines import write_log
from readie.protocol import keys
from readie.protocol.announcement import Announcement, ReadyCounts, WorkerCounts
from readie.protocol.catalogue import Catalogue
from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import Failure

from .checkpoints import Served
from .control import ControlChannel, RunningCalls
from .counts import Tally, counts
from .draining import SessionDrain
from .ends import Ends
from .inspection import Inspection
from .metrics import WorkerGauges, WorkerMetrics
from .patience import Patience
from .preflight import EXIT_CANNOT_START, CannotStartError, check_machine
from .reconciliation import Reconciliation
from .runner import Runner
from .sandbox.limits import limits_in_force
from .sandbox.runsc import RunscError
from .serving import Serving
from .sessions import Sessions
from .settings import WorkerSettings
from .stopping import Stopping
from .transport import Channel
from .watching import Watcher

_log = logging.getLogger(__name__)

_STOPPING: Final = Failure(code=ErrorCode.WORKER_LOST, message="the worker stops")
_NOTICE_SECONDS: Final = 0.1


@setup_logging.connect  # type: ignore[untyped-decorator]
def _log_to_stderr(loglevel: int = logging.INFO, **_: Any) -> None:
    write_log(WorkerSettings().log_format, loglevel)


class Lease:
    """This worker's entry in Redis.

    ``ready`` tells how many ready sandboxes there are, ``counts`` what there is besides and was done; ``health`` hears
    of every renewal. What is announced is guarded by ``_lock``: one thread renews it, others change it.
    """

    def __init__(
        self,
        ledger: HoldingLedger,
        announcement: Announcement,
        catalogue: Catalogue | None,
        ready: Callable[[], ReadyCounts],
        counts: Callable[[], WorkerCounts],
        *,
        lease_seconds: int,
        health: Health,
    ) -> None:
        self._ledger = ledger
        self._ready = ready
        self._counts = counts
        self._health = health
        self._lease_seconds = lease_seconds
        self._lock = threading.Lock()
        self._announcement = announcement
        self._catalogue = catalogue

    def renew(self) -> None:
        """Say that this worker lives. A Redis that can't be reached is tried again at the next renewal."""
        with self._lock:
            try:
                new = self._ledger.announce(self._announcement, self._lease_seconds, self._ready(), self._counts())
                if new and self._catalogue is not None:
                    self._ledger.publish_catalogue(self._catalogue)
                self._health.renewed()
            except RedisError as error:
                _log.warning("could not renew this worker's lease: %s", error)

    def offer(self, served: Served) -> None:
        """Announce what is served from now on."""
        with self._lock:
            self._catalogue = served.catalogue
            self._announcement = self._announcement.model_copy(update=_offer(served))
        self.renew()

    def drain(self) -> None:
        """Take no more calls, and give back those not begun; the entry stays while the running ones finish."""
        self._health.drains()
        with self._lock:
            self._announcement = self._announcement.model_copy(update={"draining": True})
        self.renew()
        # Sessions go on: their calls keep their turn.
        self._give_back(lambda: [call.call_id for call in self._ledger.held(self._announcement.name)])

    def end(self) -> None:
        """Withdraw the entry, and give back the calls this worker had not begun."""
        self._health.drains()
        try:
            self._ledger.withdraw(self._announcement.name)
        except RedisError as error:
            _log.warning("could not withdraw this worker's entry, its lease will end: %s", error)
        self._give_back(lambda: self._ledger.held_calls(self._announcement.name))

    def _give_back(self, held: Callable[[], list[str]]) -> None:
        name, incarnation = self._announcement.name, self._announcement.incarnation
        try:
            for call_id in held():
                self._ledger.requeue(call_id, name, incarnation)
        except RedisError as error:
            _log.warning("could not give back this worker's calls, routers will take them: %s", error)


class ReadyNotices:
    """Tells Redis which ready sandboxes there are when that has changed, in a thread of its own.

    Many changes within a tenth of a second are one notice. A notice renews no lease and wakes no waiting call.
    """

    def __init__(self, ledger: Ledger, announcement: Announcement, ready: Callable[[], ReadyCounts]) -> None:
        self._ledger = ledger
        self._announcement = announcement
        self._ready = ready
        self._changed = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="ready-notices", daemon=True)
        self._thread.start()

    def changed(self) -> None:
        """Say that there may be others than before."""
        self._changed.set()

    def close(self) -> None:
        """Give no more notices."""
        self._closed.set()
        self._changed.set()
        self._thread.join()

    def _work(self) -> None:
        told: ReadyCounts | None = None
        while self._changed.wait() and not self._closed.is_set():
            self._changed.clear()
            counts = self._ready()
            if counts != told:
                try:
                    self._ledger.tell_ready(self._announcement.name, self._announcement.incarnation, counts)
                    told = counts
                except RedisError as error:
                    _log.warning("could not tell which sandboxes are ready, the lease will: %s", error)
            self._closed.wait(_NOTICE_SECONDS)


def _offer(served: Served) -> dict[str, Any]:
    """Return the fields of an announcement that follow from what is served."""
    return {
        "python": served.filesystem.python_version,
        "generation": served.generation_id,
        "catalogue": served.catalogue.digest() if served.catalogue else None,
        "checkpoints": tuple(served.images),
    }


class WorkerStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Starts and stops what a worker is besides Celery."""

    requires = ("celery.worker.components:Timer",)

    def __init__(self, worker: Any, **_: Any) -> None:
        try:
            settings = WorkerSettings()
            runsc = check_machine(settings.runsc)
            limits = limits_in_force()
            _log.log(logging.WARNING if limits.problem else logging.INFO, "%s", limits)
            self._monitoring = monitoring = Monitoring(settings.lease_seconds)
            metrics = WorkerMetrics(monitoring.registry, settings.flavor)
            monitoring.listen(settings.metrics_address)
            redis = connect(settings.redis_url, name=f"readie-{worker.hostname}")
            refuse_cluster(redis)
            # Last: it makes sandboxes, which nobody would remove after an error.
            serving = Serving(
                settings, runsc, settings.run / worker.hostname.partition("@")[0], failed=metrics.restore_failed
            )
        except (CannotStartError, ConfigurationError, EndpointError, ValueError) as error:
            print(f"worker {worker.hostname}: cannot start: {error}", file=sys.stderr)  # noqa: T201
            raise SystemExit(EXIT_CANNOT_START) from None
        except (OSError, RuntimeError, RunscError) as error:
            # A full disk, or a worker of this name that still stops: whoever starts it again may have more luck.
            print(f"worker {worker.hostname}: cannot start now: {error}", file=sys.stderr)  # noqa: T201
            raise SystemExit(1) from None
        self._settings = settings
        self._serving = serving
        incarnation = uuid.uuid4().hex
        self._calls = calls = RunningCalls()
        task = worker.app.tasks[keys.TASK_NAME]
        task.sessions = self._sessions = Sessions(
            SessionLedger(redis), settings.flavor, Channel.read_placed, lambda: task.events, metrics.dead_letter
        )
        Channel.on_dead_letter = metrics.dead_letter
        self._control = ControlChannel(Ledger(redis), incarnation, calls, self._sessions.ended)
        patience = Patience()
        tally = Tally()
        ends = Ends(
            HoldingLedger(redis),
            patience,
            worker=worker.hostname,
            incarnation=incarnation,
            keep_seconds=settings.result_seconds,
            ended=tally.ended,
        )
        task.runner = Runner(
            StreamLedger(redis),
            serving,
            calls,
            self._sessions,
            ends=ends,
            patience=patience,
            keyring=settings.keyring,
            watchers=[metrics.attempt, *_tracers(settings)],
            stale_message=metrics.stale_message,
            worker=worker.hostname,
            max_result_bytes=settings.max_result_bytes,
            log_bytes=settings.log_bytes,
        )
        # Neither may a renewal wait long for a Redis that does not answer, nor may Celery's event loop.
        lease_redis = connect(settings.redis_url, name=f"readie-{worker.hostname}", timeout_seconds=1.5, retries=0)
        announcement = Announcement(
            name=worker.hostname,
            incarnation=incarnation,
            pid=os.getpid(),
            slots=settings.slots,
            max_sessions=settings.max_sessions,
            evicts_idle_sessions=settings.evict_idle_sessions,
            flavor=settings.flavor,
            gpu=settings.sandbox_gpu != "none",
            runsc_version=runsc.version,
            memory_bytes=settings.memory_bytes,
            call_memory_bytes=settings.sandbox_memory_bytes,
            bounds_cpu=limits.cpu is not None,
            **_offer(serving.served),
        )
        task.ledger = Ledger(lease_redis)
        task.inspection = self._inspection = Inspection(settings, serving, calls, self._sessions)
        gauges = WorkerGauges(
            self._inspection, settings.memory_bytes, name=worker.hostname, runsc_version=runsc.version
        )
        monitoring.registry.register(gauges)
        self._lease = Lease(
            HoldingLedger(lease_redis),
            announcement,
            serving.served.catalogue,
            lambda: serving.ready_counts,
            lambda: counts(self._inspection, serving, tally),
            lease_seconds=settings.lease_seconds,
            health=monitoring.health,
        )
        self._reconciliation = Reconciliation(
            HoldingLedger(redis),
            calls,
            ends,
            worker=worker.hostname,
            incarnation=incarnation,
            slots=settings.slots,
            renew=self._lease.renew,
            every_seconds=settings.lease_renewal_seconds,
            reconnect=_reconnect_consumer,
            health=monitoring.health,
            metrics=metrics,
        )
        self._stopping = Stopping(calls, patience, limit_seconds=settings.drain_seconds, begin=self._drain)
        self._notices = ReadyNotices(Ledger(redis), announcement, lambda: serving.ready_counts)
        self._session_drain = SessionDrain(
            self._sessions, self._drain, self._stopping.asked, settings.session_drain_seconds
        )

    def start(self, _worker: Any) -> None:
        """Announce this worker."""
        worker_shutting_down.connect(self._stopping.asked)
        self._session_drain.install()
        self._control.start()
        self._lease.renew()
        self._reconciliation.start()
        self._serving.watch(self._lease.offer, self._notices.changed)

    def info(self, _worker: Any) -> dict[str, str]:
        """Return what `celery inspect stats` and Flower's page of this worker show besides Celery's own."""
        return self._inspection.summary()

    def stop(self, _worker: Any) -> None:
        """Withdraw it and remove every sandbox, once the running calls have ended."""
        # Celery stops its thread pool before or after this, as it happens.
        self._calls.finish(_STOPPING)
        self._stopping.close()
        self._reconciliation.close()
        self._notices.close()
        self._sessions.close()
        self._lease.end()
        self._control.close()
        self._serving.close()
        self._monitoring.close()

    terminate = stop

    def _drain(self) -> None:
        self._lease.drain()
        self._serving.drain()


def _tracers(settings: WorkerSettings) -> list[Watcher]:
    if not settings.tracing:
        return []
    from .tracing import WorkerTraces  # noqa: PLC0415 - what it imports is there with the extra only

    return [WorkerTraces().attempt]


def _reconnect_consumer() -> None:
    """Have Celery's event loop treat its connection as lost."""
    hub = get_event_loop()
    if hub is not None:
        hub.call_soon(_fail)  # type: ignore[no-untyped-call]


def _fail() -> None:
    raise RedisConnectionError("this worker's queue has messages that it does not hear of")
