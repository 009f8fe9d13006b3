"""What more workers bring on one machine, with two slots each."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

from .calls import flood, size, warm
from .cluster import Cluster, cluster
from .results import Section, Table

SLOTS = 2
WORKERS = (1, 2, 4)
SLEEP_SECONDS = 0.5
_SECONDS = 120


def sleep(argument: bytes) -> None:
    """Wait, as a function does that asks a database."""
    time.sleep(float(argument.decode()))


@dataclass(frozen=True)
class Amounts:
    """How much is measured with each number of workers."""

    warm: int
    fresh: int
    sleeping: int
    """For each slot."""
    repetitions: int


FULL = Amounts(warm=600, fresh=40, sleeping=6, repetitions=3)


def run(amounts: Amounts) -> Section:
    """Measure."""
    section = Section("workers", "More workers on one machine", {"slots of a worker": SLOTS})
    rows = []
    for workers in WORKERS:
        slots = workers * SLOTS
        rates = _rates(workers, amounts)
        for kind, values in rates.items():
            section.add({"workers": workers, "calls": kind}, "1/s", values)
        rows.append([workers, *(median(values) for values in rates.values()), slots / SLEEP_SECONDS])
    section.tables.append(
        Table(
            "Calls a second",
            ["workers", "warm", "fresh", f"sleeping {SLEEP_SECONDS:g} s, fresh", "slots / sleep"],
            rows,
            "`warm`: a session for each slot. `fresh`: a sandbox of its own for each call. The last column is what the "
            "sleeping calls could reach at most.",
        )
    )
    return section


def _rates(workers: int, amounts: Amounts) -> dict[str, list[float]]:
    slots = workers * SLOTS
    seconds = str(SLEEP_SECONDS).encode()
    with cluster(workers=workers, slots=SLOTS) as where, contextlib.ExitStack() as stack:
        kinds = {
            "warm": partial(flood, warm(where, slots, stack), amounts.warm, 10 * slots),
            "fresh": partial(flood, _fresh(where, size), amounts.fresh, 2 * slots),
            "sleeping": partial(flood, _fresh(where, sleep), amounts.sleeping * slots, 2 * slots, seconds),
        }
        rates: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(amounts.repetitions):
            for kind, measure in kinds.items():
                # Workers still make ready sandboxes for what came before.
                where.settle()
                rates[kind].append(measure())
    return rates


def _fresh(where: Cluster, function: Callable[[bytes], object]) -> Callable[[bytes], Callable[[], object]]:
    remote = where.remote(function)
    return lambda argument: partial(remote.spawn(argument).result, _SECONDS)
