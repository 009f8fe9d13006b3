"""What a router counts of its own doings. :mod:`router.cluster` reads what Redis knows of the whole cluster."""

from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram

from readie.monitoring.endpoint import SECONDS
from readie.protocol.codes import ErrorCode

OTHER_FLAVOR = "other"
"""Stands for every flavor that no live worker has: clients can name what they like."""


Recovered = Literal[
    "router_lost",
    "worker_lost",
    "session_lost",
    "message_sent_again",
    "call_taken_back",
    "call_to_run_again",
    "call_lost",
]
"""What a router puts right."""


class RouterMetrics:
    """Counters and histograms of one router. Cheap, and safe to use from several threads.

    Args:
        registry: where they can be read.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter(
            "readie_router_calls",
            "Calls by what a router did with them; one that waits is counted again when it is placed",
            ["flavor", "outcome"],
            registry=registry,
        )
        self._route = Histogram(
            "readie_router_route_seconds",
            "Time from taking a call off the queue until its placement is sent",
            ["flavor"],
            buckets=SECONDS,
            registry=registry,
        )
        self._refusals = Counter(
            "readie_router_refusals", "Calls that a router refused, by error code", ["code"], registry=registry
        )
        self._expired = Counter("readie_router_expired_calls", "Calls that no worker began in time", registry=registry)
        self._dead_letters = Counter(
            "readie_router_dead_letters", "Messages on the submit queue that could not be read", registry=registry
        )
        self._recoveries = Counter(
            "readie_router_recoveries",
            "What a router put right: workers, routers, sessions, messages and calls that were lost",
            ["action"],
            registry=registry,
        )
        self._redis_errors = Counter(
            "readie_router_redis_errors", "Times that a router had to begin again because of Redis", registry=registry
        )

        # A counter that is not there before it first counts seems never to have grown.
        for action in get_args(Recovered):
            self._recoveries.labels(action)
        for code in ErrorCode:
            self._refusals.labels(code.value)

    def placed(self, flavor: str, route_seconds: float) -> None:
        """Count a call that was sent to a worker of a flavor."""
        self._calls.labels(flavor, "placed").inc()
        self._route.labels(flavor).observe(route_seconds)

    def waits(self, flavor: str) -> None:
        """Count a call that no worker can take now."""
        self._calls.labels(flavor, "waits").inc()

    def refused(self, flavor: str, code: ErrorCode) -> None:
        """Count a call that no worker can ever take."""
        self._calls.labels(flavor, "refused").inc()
        self._refusals.labels(code.value).inc()

    def expired(self) -> None:
        """Count a call that was not begun in time."""
        self._expired.inc()

    def dead_letter(self) -> None:
        """Count an unreadable message."""
        self._dead_letters.inc()

    def recovered(self, action: Recovered) -> None:
        """Count what was put right."""
        self._recoveries.labels(action).inc()

    def redis_failed(self) -> None:
        """Count a failure of Redis."""
        self._redis_errors.inc()
