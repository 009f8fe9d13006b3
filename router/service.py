"""The router's life: consumes, renews its lease, recovers what others left, outlives the absence of Redis."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from readie.ledger.routing import RoutingLedger
from readie.monitoring.health import Health
from readie.traffic import TrafficCounter

from .consumer import Consumer
from .expiry import Expiry
from .metrics import RouterMetrics
from .recovery import Recovery

_WAIT_SECONDS: Final = 1.0
"""A stop waits this long at most when the queue is empty."""
_GRACE_SECONDS: Final = 5.0
"""When Redis comes back every lease may have ended: workers get this long to renew theirs before they count as lost."""
_BACK_OFF_SECONDS: Final = (0.05, 0.1, 0.2, 0.5, 1.0)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Chore:
    run: Callable[[], float | None]
    """May return after how many seconds to run it again."""
    due: float
    """Monotonic clock, seconds."""
    every_seconds: float


class Service:
    """One router process.

    Args:
        ledger: the queue and the calls' records.
        router: this router's id, new with every start.
        consumer: the consumer of the submit queue.
        recovery: what looks after the dead.
        traffic: counts that go to Redis now and then.
        expiry: what ends calls that were not begun in time.
        lease_seconds: after how long without renewal the others take over what this router has in hand.
        health: is told whether this one lives and serves.
        metrics: counts failures of Redis.
    """

    def __init__(
        self,
        ledger: RoutingLedger,
        router: str,
        *,
        consumer: Consumer,
        recovery: Recovery,
        traffic: TrafficCounter,
        expiry: Expiry,
        lease_seconds: int,
        health: Health,
        metrics: RouterMetrics,
    ) -> None:
        self._ledger = ledger
        self._router = router
        self._consumer = consumer
        self._recovery = recovery
        self._traffic = traffic
        self._expiry = expiry
        self._lease_seconds = lease_seconds
        self._health = health
        self._metrics = metrics
        self._stop = threading.Event()

    def stop(self) -> None:
        """Let :meth:`run` return after the batch in hand."""
        self._health.drains()
        self._stop.set()

    def run(self) -> None:
        """Route calls until :meth:`stop`."""
        failures = 0
        while not self._stop.is_set():
            self._health.turned()
            started = time.monotonic()
            try:
                self._consume()
            except Exception as error:
                # What was in hand stays on the taken list and is given back when this goes on, or by another router.
                if time.monotonic() - started > _BACK_OFF_SECONDS[-1]:
                    failures = 0
                pause = _BACK_OFF_SECONDS[min(failures, len(_BACK_OFF_SECONDS) - 1)]
                failures += 1
                if isinstance(error, RedisError):
                    self._metrics.redis_failed()
                    log.warning("redis trouble, next try in %.2f s: try=%d error=%r", pause, failures, error)
                else:
                    log.exception("unexpected, next try in %.2f s: try=%d", pause, failures)
                self._stop.wait(pause)
        self._leave()

    def _consume(self) -> None:
        self._ledger.give_back(self._router, only_if_dead=False)
        self._ledger.renew_router(self._router, self._lease_seconds)
        self._stop.wait(self._ledger.settling_seconds())
        log.info("consuming: router=%s", self._router)
        now = time.monotonic()
        chores = [
            _Chore(self._renew, now, every_seconds=1.0),
            _Chore(self._expiry.sweep, now, every_seconds=1.0),
            _Chore(self._recovery.sweep_delayed, now, every_seconds=1.0),
            _Chore(self._recovery.sweep_routers, now, every_seconds=1.0),
            _Chore(self._recovery.sweep_messages, now, every_seconds=1.0),
            _Chore(self._recovery.sweep_workers, now + _GRACE_SECONDS, every_seconds=1.0),
            _Chore(self._recovery.sweep_never_begun, now + _GRACE_SECONDS, every_seconds=10.0),
            _Chore(self._traffic.flush, now, every_seconds=2.0),
        ]
        while not self._stop.is_set():
            self._health.turned()
            now = time.monotonic()
            for chore in chores:
                if now >= chore.due:
                    again = chore.run()
                    chore.due = time.monotonic() + (chore.every_seconds if again is None else again)
            idle_until = min(chore.due for chore in chores)
            self._consumer.consume(min(idle_until - time.monotonic(), _WAIT_SECONDS))

    def _renew(self) -> None:
        self._ledger.renew_router(self._router, self._lease_seconds)
        self._health.renewed()

    def _leave(self) -> None:
        try:
            self._ledger.give_back(self._router, only_if_dead=False)
        except (RedisConnectionError, RedisTimeoutError) as error:
            log.warning("could not take leave, the lease will end by itself: error=%r", error)
        log.info("stopped: router=%s", self._router)
