"""Whether a simulated cluster behaves as a real one does: the same calls, at the same times, on both."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from readie.generations.disk import current_generation, load_generation
from readie.protocol.call import ImportHints
from readie.settings import FlavorSettings

from .cluster import cluster
from .decisions import COSTS, Rule, imports_at_call, rule
from .results import Cell, Section, Table
from .simulated import Cluster, Costs, make_workers
from .week import Call, Week


def nothing(seconds: float) -> None:
    """Need the standard library alone."""
    time.sleep(seconds)


def arrays(seconds: float) -> float:
    """Need numpy."""
    import numpy as np

    time.sleep(seconds)
    return float(np.ones(3).sum())


def frames(seconds: float) -> int:
    """Need pandas."""
    import pandas as pd

    time.sleep(seconds)
    return len(pd.DataFrame({"a": [1, 2]}))


def forests(seconds: float) -> str:
    """Need scikit-learn."""
    from sklearn.ensemble import RandomForestClassifier

    time.sleep(seconds)
    return RandomForestClassifier.__name__


FUNCTIONS: dict[Callable[[float], Any], tuple[tuple[str, ...], float]] = {
    nothing: ((), 3.0),
    arrays: (("numpy",), 3.0),
    frames: (("pandas",), 3.0),
    forests: (("sklearn.ensemble.RandomForestClassifier",), 1.0),
}
"""Each with the hints that the scan finds, and its weight."""


@dataclass(frozen=True)
class Amounts:
    """What runs on both."""

    workers: int = 2
    slots: int = 8
    ready_megabytes: int = 768
    calls: int = 120
    burst_calls: int = 8
    """Now and then so many come at once."""
    seconds: float = 60.0


def make_calls(amounts: Amounts, seed: int) -> Week:
    """Return the calls, every fifth part of them in bursts."""
    chance = random.Random(seed)
    weights = [weight for _, weight in FUNCTIONS.values()]
    calls: list[Call] = []
    while len(calls) < amounts.calls:
        (kind,) = chance.choices(range(len(weights)), weights)
        at = chance.uniform(0.0, amounts.seconds)
        many = amounts.burst_calls if chance.random() < 1 / (4 * amounts.burst_calls) else 1
        calls += [Call(at + 0.02 * number, kind, chance.uniform(0.1, 0.5)) for number in range(many)]
    return Week([ImportHints(imports=hints) for hints, _ in FUNCTIONS.values()], sorted(calls))


def run(amounts: Amounts) -> Section:
    """Run the calls for real, then simulated."""
    section = Section("reality", "A real cluster and a simulated one", vars(amounts))
    week = make_calls(amounts, seed=1)
    real = _real(week, amounts)
    settings = FlavorSettings()
    folder = current_generation(settings.data.resolve(), settings.flavor)
    assert folder is not None, "no generation; run `make generation`"
    one = rule(load_generation(folder).catalogue)
    ready_seconds = median(seconds for met, seconds in real if met == "ready")
    others = [seconds for met, seconds in real if met != "ready"]
    costs = Costs(ready_seconds, COSTS.create_seconds)
    first = _simulated(one, week, amounts, costs, slower=1.0)
    # The machine of this run: what starts sandboxes for calls fills the pools too, and both share its cores.
    predicted = median(seconds for met, seconds in first if met != "ready") if others else 1.0
    slower = median(others) / predicted if others else 1.0
    simulated = _simulated(one, week, amounts, costs, slower=slower)
    runs = {"real": real, "simulated": first, f"simulated, restores {slower:.2g} times slower": simulated}
    rows = [[name, *_figures(found)] for name, found in runs.items()]
    section.add({"which": "real"}, "s", [seconds for _, seconds in real])
    section.add({"which": "simulated"}, "s", [seconds for _, seconds in simulated])
    section.tables.append(
        Table(
            "The same calls",
            ["cluster", "ready %", "created %", "neither %", "start mean ms", "of ready ones", "of others"],
            rows,
            "Start: phases `sandbox` to `load`, without imports at call time. That of a ready sandbox is the "
            "real run's median; the rest is predicted.",
        )
    )
    return section


def _real(week: Week, amounts: Amounts) -> list[tuple[str, float]]:
    settings = {"READIE_READY_MEMORY_BYTES": str(amounts.ready_megabytes << 20)}
    with cluster(workers=amounts.workers, slots=amounts.slots, settings=settings) as one:
        functions = [one.remote(function) for function in FUNCTIONS]
        for function in functions:
            function(0.0)
        one.settle()
        pending = []
        began = time.monotonic()
        for call in week.calls:
            time.sleep(max(0.0, began + call.at_seconds - time.monotonic()))
            pending.append(functions[call.kind].spawn(call.run_seconds))
        found = []
        for handle in pending:
            handle.result()
            report = handle.report()
            found.append((report.pool or "none", report.start_seconds))
        return found


def _simulated(one: Rule, week: Week, amounts: Amounts, costs: Costs, *, slower: float) -> list[tuple[str, float]]:
    workers = make_workers(
        amounts.workers,
        one.compiled,
        one.sources,
        slots=amounts.slots,
        ready_bytes=amounts.ready_megabytes << 20,
        created=2,
    )
    # Before the first call there is time to fill the pools, as there was for real.
    later = [call._replace(at_seconds=call.at_seconds + 60.0) for call in week.calls]
    first = [Call(0.1 * kind, kind, 0.0) for kind in range(len(week.kinds))]
    restores = {name: slower * seconds for name, seconds in one.restore_seconds.items()}
    costs = Costs(costs.ready_seconds, slower * costs.create_seconds)
    started = Cluster(workers, costs, one.choose, restores).run(Week(week.kinds, first + later))
    return [
        (found.met, found.start_seconds - imports_at_call(one, week, found))
        for found in started
        if found.call.at_seconds >= later[0].at_seconds
    ]


def _figures(found: list[tuple[str, float]]) -> list[Cell]:
    met = Counter(kind for kind, _ in found)
    shares = [100 * met[kind] / len(found) for kind in ("ready", "created", "none")]
    ready = [seconds for kind, seconds in found if kind == "ready"]
    others = [seconds for kind, seconds in found if kind != "ready"]
    means = [1e3 * fmean(values) if values else None for values in (ready, others)]
    return [*shares, 1e3 * fmean(seconds for _, seconds in found), *means]
