"""Clusters too large to be had: the product's decisions on simulated workers, up to 10,000 and 1 M calls a minute."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil
from statistics import fmean
from typing import NamedTuple

from redis import Redis

from readie.protocol.call import ImportHints
from workers.pipeline.corpus import Corpus, read_corpus
from workers.sandbox.wanted import Wanted
from workers.settings import WorkerSettings

from . import deciding, redis_load
from .cluster import redis_server
from .decisions import CORPUS, COSTS, Rule, read_catalogue, rule
from .results import Cell, Check, Ratio, Section, Table
from .sampling import percentile
from .simulated import Cluster, Started, Worker, header, make_workers, oldest_seconds
from .week import Call, Week

SLOTS = 8
READY_BYTES = 2 << 30
CREATED = 2
RUN_SECONDS = 1.0
"""Mean of how long a call runs, exponential."""
CALLS_PER_MINUTE = 100.0
"""Of each worker, where the number of workers changes."""
WARM_UP_SECONDS = 600.0
LOADED = 50
"""Workers, where what changes is the load."""
CHOICES_RATIO = "choose 1,000 workers / 10"
_MODELS = 2
_LEAST_SECONDS = 0.5
_MOST_BUSY = 0.7
"""Share of its time that a router, or Redis, may be at work for calls to find it free mostly."""


class Point(NamedTuple):
    """One cluster and what its calls met."""

    workers: int
    calls_per_minute: float
    routers: int
    looking_share: float
    """Of the routers' time, for looks at all workers; above 1 they could not do what was simulated."""
    started: list[Started]


@dataclass(frozen=True)
class Amounts:
    """How much is simulated and measured."""

    workers: tuple[int, ...] = (10, 100, 1000, 10_000)
    loads: tuple[float, ...] = (25, 50, 100, 150, 200, 250, 300)
    """Calls a minute for each worker, where there are ``loaded`` of them."""
    loaded: int = LOADED
    calls: int = 15_000
    """For each point, at the least."""
    router_call_seconds: float = 0.0003
    """Processor time of a router for one call, with ``loaded`` workers; section ``router`` has it."""
    decisions: int = 3000
    redis_calls: int = 6400


def steady(corpus: Corpus, calls_per_second: float, begin: float, end: float, seed: int) -> Week:
    """Return calls at a steady rate, each of a corpus' sets as often as its weight says."""
    chance = random.Random(seed)
    kinds = [ImportHints(imports=found.imports) for found in corpus.sets]
    weights = list(accumulate(found.weight for found in corpus.sets))
    calls = []
    at = begin + chance.expovariate(calls_per_second)
    while at < end:
        (kind,) = chance.choices(range(len(kinds)), cum_weights=weights)
        calls.append(Call(at, kind, chance.expovariate(1 / RUN_SECONDS)))
        at += chance.expovariate(calls_per_second)
    return Week(kinds, calls)


def warm_workers(one: Rule, corpus: Corpus, count: int, calls_per_second: float) -> list[Worker]:
    """Return workers whose pools are as after ten minutes of so many calls for each; they begin alike."""
    model, *_ = several = _workers(one, _MODELS)
    Cluster(several, COSTS, one.choose, one.restore_seconds).run(
        steady(corpus, _MODELS * calls_per_second, 0.0, WARM_UP_SECONDS, seed=0)
    )
    workers = _workers(one, count)
    for worker in workers:
        worker.created = CREATED
        worker.ready = dict(model.ready)
        known = model.wanted.demand({name: name for name in one.sources if name is not None})
        worker.wanted = Wanted(one.sources, known)
    return workers


def _workers(one: Rule, count: int) -> list[Worker]:
    return make_workers(count, one.compiled, one.sources, slots=SLOTS, ready_bytes=READY_BYTES, created=CREATED)


def point(  # noqa: PLR0917
    one: Rule, corpus: Corpus, calls_per_minute: float, amounts: Amounts, cost: deciding.Deciding, call_seconds: float
) -> Point:
    """Simulate one cluster; ``calls_per_minute`` are those of a worker, ``call_seconds`` a router's for one call."""
    rate = calls_per_minute / 60
    routers = ceil(_routers(cost.workers * rate, cost, call_seconds))
    seconds = max(amounts.calls / (cost.workers * rate), _LEAST_SECONDS)
    week = steady(corpus, cost.workers * rate, WARM_UP_SECONDS, WARM_UP_SECONDS + seconds, seed=1)
    cluster = Cluster(
        warm_workers(one, corpus, cost.workers, rate),
        COSTS,
        one.choose,
        one.restore_seconds,
        routers=routers,
        look_seconds=cost.look_seconds,
    )
    started = cluster.run(week)
    looking = cluster.looks * cost.look_seconds / (routers * seconds)
    return Point(cost.workers, cost.workers * calls_per_minute, routers, looking, started)


def _routers(rate: float, cost: deciding.Deciding, call_seconds: float) -> float:
    """Return how many routers so many calls per second need."""
    return rate * call_seconds / (_MOST_BUSY - cost.look_seconds / oldest_seconds(cost.look_seconds))


def measure_choices(workers: Sequence[int], decisions: int) -> dict[int, deciding.Deciding]:
    """Measure what a router's decision and its look cost, by the number of workers."""
    catalogue, corpus = read_catalogue(), read_corpus(CORPUS)
    headers = [header(ImportHints(imports=found.imports), number) for number, found in enumerate(corpus.sets)]
    costs = {}
    for count in workers:
        with redis_server() as url, Redis.from_url(url) as redis:
            costs[count] = deciding.measure(redis, catalogue, headers, count, decisions)
    return costs


def choices(decisions: int) -> Section:
    """Measure decisions alone, for the baseline."""
    section = Section("choices", "What the number of workers costs a router")
    costs = measure_choices((10, 1000), decisions)
    section.tables.append(_decisions(costs))
    section.ratios[CHOICES_RATIO] = Ratio(costs[1000].choose_seconds / costs[10].choose_seconds, "lower")
    return section


def run(amounts: Amounts) -> Section:
    """Measure what decides cost, and simulate with it."""
    corpus, one = read_corpus(CORPUS), rule(read_catalogue())
    section = Section(
        "simulation",
        "Up to 10,000 simulated workers",
        {"slots of a worker": SLOTS, "ready MiB of a worker": READY_BYTES >> 20, "run seconds": RUN_SECONDS},
    )
    costs = measure_choices(sorted({*amounts.workers, amounts.loaded}), amounts.decisions)
    with redis_server() as url, Redis.from_url(url) as redis:
        load = redis_load.measure(redis, amounts.redis_calls)
    # What a router does for a call besides choosing is the same with any number of workers.
    besides = amounts.router_call_seconds - costs[amounts.loaded].choose_seconds
    call_seconds = {count: besides + cost.choose_seconds for count, cost in costs.items()}
    largest = amounts.workers[-1]
    section.tables += [_decisions(costs), _limits(load, costs[largest], call_seconds[largest])]
    points = [
        point(one, corpus, CALLS_PER_MINUTE, amounts, costs[count], call_seconds[count]) for count in amounts.workers
    ]
    section.tables.append(_points("More workers, 100 calls a minute for each", points))
    of_loaded = costs[amounts.loaded], call_seconds[amounts.loaded]
    loads = [point(one, corpus, calls, amounts, *of_loaded) for calls in amounts.loads]
    section.tables.append(_points(f"More calls for {amounts.loaded} workers", loads))
    for found in (*points, *loads):
        labels = {"workers": found.workers, "calls a minute": found.calls_per_minute}
        for what, values in _times(found).items():
            cuts = [percentile(values, percent) for percent in (50, 90, 99, 99.9)]
            section.add({**labels, "what": what, "values": "p50 p90 p99 p99.9"}, "s", cuts)
    least = amounts.workers[0]
    section.checks.append(
        Check(
            f"choosing among {largest:,} workers / among {least:,}",
            costs[largest].choose_seconds / costs[least].choose_seconds,
            "at most",
            10,
        )
    )
    return section


def _decisions(costs: Mapping[int, deciding.Deciding]) -> Table:
    return Table(
        "What the number of workers costs a router",
        [
            "workers",
            "choosing for one call, µs",
            "comparing every worker, µs",
            "a look at all, ms",
            "of it in Redis, ms",
            "looks a second",
        ],
        [
            [
                count,
                1e6 * cost.choose_seconds,
                1e6 * cost.every_worker_seconds,
                1e3 * cost.look_seconds,
                1e3 * cost.look_redis_seconds,
                1 / oldest_seconds(cost.look_seconds),
            ]
            for count, cost in costs.items()
        ],
        "The router's own code on a real Redis. Choosing includes arranging the workers anew after a look.",
    )


def _limits(load: redis_load.RedisLoad, largest: deciding.Deciding, call_seconds: float) -> Table:
    rate = largest.workers * CALLS_PER_MINUTE / 60
    routers = _routers(rate, largest, call_seconds)
    looks = ceil(routers) / oldest_seconds(largest.look_seconds)
    renewals = largest.workers / WorkerSettings.model_fields["lease_renewal_seconds"].default
    shares = {
        "calls": (rate, load.cpu_seconds),
        "renewals of the workers' leases": (renewals, load.renewal_cpu_seconds),
        "looks of the routers": (looks, largest.look_redis_seconds),
    }
    used = sum(often * seconds for often, seconds in shares.values())
    rows: list[list[Cell]] = [
        [f"Redis: {what}", often, 1e6 * seconds, often * seconds] for what, (often, seconds) in shares.items()
    ]
    return Table(
        f"{largest.workers:,} workers, {60 * rate:,.0f} calls a minute",
        ["what", "a second", "processor µs of each", "processors at work"],
        [
            *rows,
            ["Redis, together", None, None, used],
            ["Redis servers needed", None, None, used / _MOST_BUSY],
            ["routers: calls", rate, 1e6 * call_seconds, rate * call_seconds],
            ["routers needed", None, None, routers],
        ],
        f"A call is {load.sent_commands:.3g} commands for Redis and, with what scripts run, {load.commands:.3g}. "
        f"Needed: at work for {_MOST_BUSY:.0%} of the time at the most, a router's looks included.",
    )


def _points(title: str, points: Sequence[Point]) -> Table:
    rows = []
    for found in points:
        times = _times(found)
        met = Counter(one.met for one in found.started)
        shares = [100 * met[kind] / len(found.started) for kind in ("ready", "created", "none")]
        waited = sum(one.wait_seconds > 0 for one in found.started) / len(found.started)
        starts, waits = times["start"], times["wait"]
        rows.append(
            [
                found.workers,
                f"{found.calls_per_minute:,.0f}",
                found.routers,
                100 * found.looking_share,
                *(1e3 * percentile(starts, percent) for percent in (50, 99)),
                1e3 * fmean(starts),
                *shares,
                100 * waited,
                1e3 * percentile(waits, 99),
            ]
        )
    return Table(
        title,
        [
            *("workers", "calls a minute", "routers", "looking %", "start p50 ms", "p99", "mean"),
            *("ready %", "created %", "neither %", "waited for room %", "wait p99 ms"),
        ],
        rows,
        "`looking`: of the routers' time, for looks at all workers; above 100 they could not do what was simulated.",
    )


def _times(found: Point) -> dict[str, list[float]]:
    return {
        "start": [one.start_seconds for one in found.started],
        "wait": [one.wait_seconds for one in found.started],
    }
