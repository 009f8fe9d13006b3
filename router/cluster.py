"""Gauges of the whole cluster, read from Redis when somebody asks for them. Every router tells the same."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic import ValidationError
from redis.exceptions import RedisError

from readie.ledger.routing import Look, RoutingLedger
from readie.protocol import keys
from readie.protocol.announcement import Announcement

from .metrics import OTHER_FLAVOR
from .needs import Needs

_GAUGES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "redis_up": ("1 when Redis answers; if not, there is no other `readie_cluster_` metric", ()),
    "pending_calls": ("Calls that have not ended", ()),
    "queue_length": (
        "`submit`: messages that no router has taken; `delayed`: calls to run again later; `dead_letters`: kept ones",
        ("queue",),
    ),
    "waiting_calls": ("Calls that no worker can take now", ("flavor",)),
    "sessions": ("Sessions that have not ended", ()),
    "routers": ("Routers, those included whose lease has just ended", ()),
    "workers": ("Workers: `serving`, or `draining` when told to stop", ("flavor", "state")),
    "slots": ("Calls that the serving workers can run at once", ("flavor",)),
    "busy_slots": ("Slots taken by calls, on their way or running", ("flavor",)),
    "memory_bytes": ("What the sandboxes of the serving workers may hold", ("flavor",)),
    "reserved_memory_bytes": ("What calls and sessions have reserved of it", ("flavor",)),
}


class ClusterCollector(Collector):
    """Looks at Redis at each scrape.

    Args:
        ledger: with a connection of its own, whose answers must not be long in coming.
    """

    def __init__(self, ledger: RoutingLedger) -> None:
        self._ledger = ledger

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics without samples."""
        gauges, stale = _families()
        yield from gauges.values()
        yield stale

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        gauges, stale = _families()
        try:
            self._fill(gauges, stale)
        except RedisError:
            gauges, stale = _families()
            gauges["redis_up"].add_metric([], 0)
        yield from gauges.values()
        yield stale

    def _fill(self, gauges: dict[str, GaugeMetricFamily], stale: CounterMetricFamily) -> None:
        ledger = self._ledger
        flavors = _fill_workers(gauges, ledger.look())
        groups = list(ledger.waiting_groups())
        with ledger.redis.pipeline(transaction=False) as pipe:
            for sorted_set in (keys.PENDING, keys.SESSIONS, keys.ROUTERS, keys.DELAYED):
                pipe.zcard(sorted_set)
            for queue in (keys.SUBMIT_QUEUE, keys.DEAD_LETTERS):
                pipe.llen(queue)
            pipe.get(keys.STALE)
            for group in groups:
                pipe.zcard(keys.waiting_group(group))
            pending, sessions, routers, delayed, submit, dead_letters, stale_count, *waiting = pipe.execute()
        gauges["redis_up"].add_metric([], 1)
        gauges["pending_calls"].add_metric([], pending)
        gauges["sessions"].add_metric([], sessions)
        gauges["routers"].add_metric([], routers)
        for queue, length in {"submit": submit, "delayed": delayed, "dead_letters": dead_letters}.items():
            gauges["queue_length"].add_metric([queue], length)
        by_flavor = Counter(dict.fromkeys(flavors, 0))
        for group, count in zip(groups, waiting, strict=True):
            by_flavor[_flavor_of(group, flavors)] += count
        for flavor, count in by_flavor.items():
            gauges["waiting_calls"].add_metric([flavor], count)
        stale.add_metric([], int(stale_count or 0))


def _families() -> tuple[dict[str, GaugeMetricFamily], CounterMetricFamily]:
    gauges = {
        name: GaugeMetricFamily(f"readie_cluster_{name}", text, labels=labels)
        for name, (text, labels) in _GAUGES.items()
    }
    text = "Messages and ends of attempts that had moved on, since Redis was empty"
    return gauges, CounterMetricFamily("readie_cluster_stale", text, labels=())


def _fill_workers(gauges: dict[str, GaugeMetricFamily], look: Look) -> set[str]:
    """Add what is known of the workers; return their flavors."""
    workers: Counter[tuple[str, str]] = Counter()
    sums: dict[str, Counter[str]] = {
        name: Counter() for name in ("slots", "busy_slots", "memory_bytes", "reserved_memory_bytes")
    }
    for seen in look.workers.values():
        try:
            announcement = Announcement.model_validate_json(seen.announcement)
        except ValidationError:
            continue
        flavor = announcement.flavor
        workers[flavor, "draining" if announcement.draining else "serving"] += 1
        offered = not announcement.draining
        sums["slots"][flavor] += announcement.slots if offered else 0
        sums["memory_bytes"][flavor] += (announcement.memory_bytes or 0) if offered else 0
        sums["busy_slots"][flavor] += seen.busy
        sums["reserved_memory_bytes"][flavor] += seen.reserved_bytes
    for (flavor, state), count in workers.items():
        gauges["workers"].add_metric([flavor, state], count)
    for name, by_flavor in sums.items():
        for flavor, total in by_flavor.items():
            gauges[name].add_metric([flavor], total)
    return {flavor for flavor, _ in workers}


def _flavor_of(group: str, flavors: set[str]) -> str:
    try:
        flavor = Needs.of_group(group).flavor
    except ValueError:
        return OTHER_FLAVOR
    return flavor if flavor in flavors else OTHER_FLAVOR
