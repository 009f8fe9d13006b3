"""``python -m router``: the one place where a router process is put together."""

import logging
import os
import secrets
import signal
import socket
import sys
from typing import TYPE_CHECKING, Final

from kombu.connection import Connection
from pydantic import ValidationError

from readie.connection import connect, refuse_cluster, without_password, without_tls
from readie.errors import ConfigurationError
from readie.ledger.routing import RoutingLedger
from readie.ledger.sessions import SessionLedger
from readie.ledger.streams import StreamLedger
from readie.ledger.wishes import Wishes
from readie.monitoring.endpoint import EndpointError, Monitoring
from readie.monitoring.log_lines import write_log
from readie.sentinel import broker_url
from readie.traffic import TrafficCounter

from .cluster import ClusterCollector
from .consumer import Consumer
from .dead_letters import DeadLetters
from .dispatch import Dispatcher, MostWaiting
from .ending import Ending
from .expiry import Expiry
from .explain import Explainer
from .fleet import Fleet
from .message import MessageFormat
from .metrics import RouterMetrics
from .recovery import Recovery
from .service import Service
from .sessions import SessionCalls
from .settings import RouterSettings
from .waiting import WaitingCalls

if TYPE_CHECKING:
    from .tracing import RouterTraces

_AWAY_SECONDS: Final = 3.0
"""Workers renew their leases every two seconds."""

log = logging.getLogger("router")


def main() -> int:
    """Run a router until SIGTERM or SIGINT; returns the exit status."""
    try:
        settings = RouterSettings()
    except ValidationError as error:
        print(f"router: {error}", file=sys.stderr)  # noqa: T201
        return 2
    write_log(settings.log_format, settings.log_level)
    monitoring = Monitoring(settings.router_lease_seconds)
    service = build(settings, monitoring)
    try:
        monitoring.listen(settings.metrics_address)
    except EndpointError as error:
        log.error("%s", error)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: service.stop())
    signal.signal(signal.SIGINT, lambda *_: service.stop())
    try:
        refuse_cluster(connect(settings.redis_url, name="readie-router", retries=0))
    except ConfigurationError as error:
        print(f"router: {error}", file=sys.stderr)  # noqa: T201
        return 2
    log.info("router starts: pid=%d redis=%s", os.getpid(), without_password(settings.redis_url))
    service.run()
    monitoring.close()
    return 0


def build(settings: RouterSettings, monitoring: Monitoring) -> Service:
    """Put a router together; nothing is connected yet."""
    router = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    redis = connect(settings.redis_url, name=f"readie-router-{os.getpid()}", retries=0)
    ledger = SessionLedger(redis)
    metrics = RouterMetrics(monitoring.registry)
    traces = _traces() if settings.tracing else None
    # A scrape must not wait for what routing has in hand, nor long for a Redis that does not answer.
    look_redis = connect(
        settings.redis_url, name=f"readie-router-metrics-{os.getpid()}", timeout_seconds=1.5, retries=0
    )
    monitoring.registry.register(ClusterCollector(RoutingLedger(look_redis)))
    # kombu names Redis' unix sockets otherwise than redis-py.
    url, tls = without_tls(settings.redis_url.replace("unix://", "redis+socket://", 1))
    url, options = broker_url(url)
    broker = Connection(url, ssl=tls, transport_options=options)  # type: ignore[no-untyped-call]
    messages = MessageFormat(broker, settings.keyring, settings.signature_seconds)
    fleet = Fleet(ledger, router, settings.fleet_max_age_seconds)
    ending = Ending(ledger, settings.result_seconds)
    dead_letters = DeadLetters(ledger, router, ending, metrics)
    traffic = TrafficCounter(redis)
    dispatcher = Dispatcher(
        ledger,
        router,
        sessions=SessionCalls(ledger, router, messages, settings.max_queued, metrics=metrics, traces=traces),
        fleet=fleet,
        messages=messages,
        ending=ending,
        dead_letters=dead_letters,
        traffic=traffic,
        most_waiting=MostWaiting(settings.max_queued, settings.max_queued_per_client),
        metrics=metrics,
        traces=traces,
    )
    waiting = WaitingCalls(ledger, fleet, messages, dispatcher, dead_letters)
    consumer = Consumer(
        ledger,
        router,
        messages=messages,
        dispatcher=dispatcher,
        waiting=waiting,
        explainer=Explainer(ledger, router, fleet),
        wishes=Wishes(ledger, StreamLedger(redis)),
        dead_letters=dead_letters,
    )
    return Service(
        ledger,
        router,
        consumer=consumer,
        recovery=Recovery(ledger, settings.result_seconds, _AWAY_SECONDS, metrics=metrics),
        traffic=traffic,
        expiry=Expiry(ledger, ending, metrics),
        lease_seconds=settings.router_lease_seconds,
        health=monitoring.health,
        metrics=metrics,
    )


def _traces() -> "RouterTraces":
    from .tracing import RouterTraces  # noqa: PLC0415 - what it imports is there with the extra only

    return RouterTraces()


if __name__ == "__main__":
    sys.exit(main())
