"""Clusters too large to be had: the product's decisions on simulated workers, up to 10,000 and 1 M calls a minute."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil
from statistics import fmean
from typing import NamedTuple

from redis import Redis

from readie.protocol.call import ImportHints
from workers.pipeline.corpus import Corpus, read_corpus
from workers.sandbox.wanted import Wanted

from . import deciding, redis_load
from .cluster import redis_server
from .decisions import CORPUS, COSTS, Rule, read_catalogue, rule
from .results import RESULTS, Check, Ratio, Section, Table, write
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
_MODELS = 2
_LEAST_SECONDS = 3.0
_MOST_BUSY = 0.7
"""Share of its time that a router may be at work for calls to find it free mostly."""


class Point(NamedTuple):
    """One cluster and what its calls met."""

    workers: int
    calls_per_minute: float
    routers: int
    started: list[Started]


@dataclass(frozen=True)
class Amounts:
    """How much is simulated and measured."""

    workers: tuple[int, ...] = (10, 100, 1000, 10_000)
    loads: tuple[float, ...] = (25, 50, 100, 150, 200, 250, 300)
    """Calls a minute for each worker, where there are ``loaded`` of them."""
    loaded: int = 50
    calls: int = 15_000
    """For each point, at the least."""
    router_call_seconds: float = 0.0003
    """Processor time of a router for one call, with 50 workers; section ``router`` of ``make bench``."""
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
    one: Rule, corpus: Corpus, workers: int, calls_per_minute: float, amounts: Amounts, look_seconds: float
) -> Point:
    """Simulate one cluster; ``calls_per_minute`` are those of a worker."""
    rate = calls_per_minute / 60
    routers = ceil(workers * rate * amounts.router_call_seconds / _MOST_BUSY)
    seconds = max(amounts.calls / (workers * rate), _LEAST_SECONDS)
    week = steady(corpus, workers * rate, WARM_UP_SECONDS, WARM_UP_SECONDS + seconds, seed=1)
    cluster = Cluster(
        warm_workers(one, corpus, workers, rate),
        COSTS,
        one.choose,
        one.restore_seconds,
        routers=routers,
        look_seconds=look_seconds,
    )
    return Point(workers, workers * calls_per_minute, routers, cluster.run(week))


def run(amounts: Amounts) -> Section:
    """Measure what decides cost, and simulate with it."""
    catalogue, corpus = read_catalogue(), read_corpus(CORPUS)
    one = rule(catalogue)
    section = Section(
        "simulation",
        "Up to 10,000 simulated workers",
        {"slots of a worker": SLOTS, "ready MiB of a worker": READY_BYTES >> 20, "run seconds": RUN_SECONDS},
    )
    headers = [header(ImportHints(imports=found.imports), number) for number, found in enumerate(corpus.sets)]
    costs = []
    for count in amounts.workers:
        with redis_server() as url, Redis.from_url(url) as redis:
            costs.append(deciding.measure(redis, catalogue, headers, count, amounts.decisions))
    with redis_server() as url, Redis.from_url(url) as redis:
        load = redis_load.measure(redis, amounts.redis_calls)
    section.tables += [_decisions(costs), _limits(load, costs[-1], amounts)]
    look_seconds = {cost.workers: cost.look_seconds for cost in costs}
    points = [point(one, corpus, count, CALLS_PER_MINUTE, amounts, look_seconds[count]) for count in amounts.workers]
    section.tables.append(_points("More workers, 100 calls a minute for each", points))
    loads = [
        point(one, corpus, amounts.loaded, load_, amounts, look_seconds.get(amounts.loaded, 0.0))
        for load_ in amounts.loads
    ]
    section.tables.append(_points(f"More calls for {amounts.loaded} workers", loads))
    for found in (*points, *loads):
        labels = {"workers": found.workers, "calls a minute": found.calls_per_minute}
        for what, values in _times(found).items():
            cuts = [percentile(values, percent) for percent in (50, 90, 99, 99.9)]
            section.add({**labels, "what": what, "values": "p50 p90 p99 p99.9"}, "s", cuts)
    section.checks.append(
        Check(
            f"choosing among {costs[-1].workers:,} workers / among {costs[0].workers:,}",
            costs[-1].choose_seconds / costs[0].choose_seconds,
            "at most",
            10,
        )
    )
    section.ratios["choose 1,000 workers / 10"] = Ratio(
        next(cost.choose_seconds for cost in costs if cost.workers == 1000) / costs[0].choose_seconds, better="lower"
    )
    return section


def _decisions(costs: Sequence[deciding.Deciding]) -> Table:
    return Table(
        "What the number of workers costs a router",
        [
            "workers",
            "choosing for one call, µs",
            "comparing every worker, µs",
            "a look at all in Redis, ms",
            "looks a second",
        ],
        [
            [
                cost.workers,
                1e6 * cost.choose_seconds,
                1e6 * cost.every_worker_seconds,
                1e3 * cost.look_seconds,
                1 / oldest_seconds(cost.look_seconds),
            ]
            for cost in costs
        ],
        "The router's own code on a real Redis. Choosing includes arranging the workers anew after a look.",
    )


def _limits(load: redis_load.RedisLoad, largest: deciding.Deciding, amounts: Amounts) -> Table:
    rate = largest.workers * CALLS_PER_MINUTE / 60
    routers = rate * amounts.router_call_seconds / _MOST_BUSY
    return Table(
        f"{largest.workers:,} workers with {CALLS_PER_MINUTE:g} calls a minute each: {60 * rate:,.0f} calls a minute",
        ["what", "for one call", "one can do, calls a minute", "needed"],
        [
            [
                "Redis: commands sent, scripts counted as one",
                load.sent_commands, None, None,
            ],
            ["Redis: commands run, those of scripts too", load.commands, None, None],
            ["Redis: processor µs", 1e6 * load.cpu_seconds, 60 / load.cpu_seconds, rate * load.cpu_seconds],
            ["router: processor µs", 1e6 * amounts.router_call_seconds, 60 * rate / routers, routers],
        ],
        "`needed`: Redis servers that do nothing else, and routers that are at work for 70 % of their time.",
    )  # fmt: skip


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
            *("workers", "calls a minute", "routers", "start p50 ms", "p99", "mean"),
            *("ready %", "created %", "neither %", "waited for room %", "wait p99 ms"),
        ],
        rows,
    )


def _times(found: Point) -> dict[str, list[float]]:
    return {
        "start": [one.start_seconds for one in found.started],
        "wait": [one.wait_seconds for one in found.started],
    }


if __name__ == "__main__":
    write(run(Amounts()), RESULTS)
