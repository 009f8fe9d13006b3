"""A synthetic week of calls over a corpus of import sets. Made of chance, the same for the same seed.

Rates follow day and night and the end of the week. What is called shifts: each set has an audience with hours of its
own, and each day its own luck. On Wednesday at noon a set that nobody called becomes popular. Calls come one by one and
in bursts, as from a map; a few need two sets at once, which nobody planned for.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from readie.protocol.call import ImportHints
from workers.pipeline.corpus import Corpus

HOUR_SECONDS = 3600.0
DAY_SECONDS = 24 * HOUR_SECONDS
WEEK_SECONDS = 7 * DAY_SECONDS
_FIRST_DAY_OF_WEEKEND = 5
_NIGHT_SHARE = 0.1
_WEEKEND_SHARE = 0.35
_NEWCOMER_BEGINS_SECONDS = 2.5 * DAY_SECONDS
_NEWCOMER_SHARE = 0.12
_DAILY_LUCK_SIGMA = 0.6
_TWO_SETS_SHARE = 0.03
_BURST_CALLS = (8, 40)
_BURST_SECONDS = (0.5, 3.0)
_RUN_MEDIAN_SECONDS = 0.4
_RUN_SIGMA = 1.2
_LONGEST_RUN_SECONDS = 60.0
_AUDIENCES = {
    "batch": ({"sklearn", "scipy", "joblib"}, (22, 6)),
    "analysts": ({"pandas", "matplotlib", "networkx"}, (8, 18)),
    "services": ({"requests", "httpx", "pydantic", "sqlalchemy", "PIL"}, (15, 23)),
}
_IN_THEIR_HOURS = 3.0


class Call(NamedTuple):
    """One call of the week."""

    at_seconds: float
    kind: int
    """Which of ``Week.kinds``."""
    run_seconds: float
    """How long its function runs."""


@dataclass(frozen=True)
class Week:
    """Calls in the order in which they come."""

    kinds: list[ImportHints]
    calls: list[Call]


def make_week(corpus: Corpus, mean_calls_per_second: float, bursts_per_day: float, seed: int) -> Week:
    """Return a week; the calls of bursts come on top of the mean rate."""
    return _Maker(corpus, random.Random(seed)).make(mean_calls_per_second, bursts_per_day)


class _Maker:
    def __init__(self, corpus: Corpus, chance: random.Random) -> None:
        self._chance = chance
        self._sets = list(corpus.sets)
        # Not in the plan's mind: of the sets that hardly anybody calls, one that needs much.
        rare = sorted(range(len(self._sets)), key=lambda number: self._sets[number].weight)[: len(self._sets) // 4]
        self._newcomer = max(rare, key=lambda number: (len(self._sets[number].imports), number))
        self._audience = [_audience(found.imports) for found in self._sets]
        self._kinds = [ImportHints(imports=found.imports) for found in self._sets]
        self._unions: dict[frozenset[str], int] = {}

    def make(self, mean_calls_per_second: float, bursts_per_day: float) -> Week:
        shares = [_share(hour) for hour in range(7 * 24)]
        scale = mean_calls_per_second * HOUR_SECONDS * len(shares) / sum(shares)
        burst_scale = bursts_per_day * 7 / sum(shares)
        calls: list[Call] = []
        luck: list[float] = []
        for hour, share in enumerate(shares):
            if hour % 24 == 0:
                luck = [self._chance.lognormvariate(0.0, _DAILY_LUCK_SIGMA) for _ in self._sets]
            weights = list(accumulate(self._weights(hour % 24, luck)))
            for _ in range(self._poisson(scale * share)):
                at = (hour + self._chance.random()) * HOUR_SECONDS
                calls.append(Call(at, self._kind(weights, at), self._run_seconds()))
            for _ in range(self._poisson(burst_scale * share)):
                calls += self._burst((hour + self._chance.random()) * HOUR_SECONDS, weights)
        calls.sort()
        return Week(self._kinds, calls)

    def _weights(self, hour: int, luck: Sequence[float]) -> list[float]:
        factors = {name: _IN_THEIR_HOURS if _within(hour, hours) else 1.0 for name, (_, hours) in _AUDIENCES.items()}
        return [
            found.weight * chance * factors.get(audience, 1.0)
            for found, chance, audience in zip(self._sets, luck, self._audience, strict=True)
        ]

    def _kind(self, weights: Sequence[float], at: float) -> int:
        if at >= _NEWCOMER_BEGINS_SECONDS and self._chance.random() < _NEWCOMER_SHARE:
            return self._newcomer
        (kind,) = self._chance.choices(range(len(self._sets)), cum_weights=weights)
        if self._chance.random() >= _TWO_SETS_SHARE:
            return kind
        (other,) = self._chance.choices(range(len(self._sets)), cum_weights=weights)
        names = frozenset(self._sets[kind].imports) | frozenset(self._sets[other].imports)
        if names not in self._unions:
            self._unions[names] = len(self._kinds)
            self._kinds.append(ImportHints(imports=tuple(sorted(names))))
        return self._unions[names]

    def _burst(self, at: float, weights: Sequence[float]) -> list[Call]:
        kind = self._kind(weights, at)
        span = self._chance.uniform(*_BURST_SECONDS)
        count = self._chance.randint(*_BURST_CALLS)
        run_seconds = self._run_seconds()
        return [Call(at + self._chance.random() * span, kind, run_seconds) for _ in range(count)]

    def _run_seconds(self) -> float:
        return min(self._chance.lognormvariate(math.log(_RUN_MEDIAN_SECONDS), _RUN_SIGMA), _LONGEST_RUN_SECONDS)

    def _poisson(self, mean: float) -> int:
        # By the times between events: fine for some thousands.
        count, at = -1, 0.0
        while at < mean:
            at += self._chance.expovariate(1.0)
            count += 1
        return count


def _share(hour: int) -> float:
    """Return the rate in an hour of the week, 1 at its height."""
    of_day = hour % 24
    day = max(0.0, math.sin(math.pi * (of_day + 0.5 - 6) / 16)) if 6 <= of_day < 22 else 0.0
    share = _NIGHT_SHARE + (1 - _NIGHT_SHARE) * day
    return share * (_WEEKEND_SHARE if hour // 24 >= _FIRST_DAY_OF_WEEKEND else 1.0)


def _within(hour: int, hours: tuple[int, int]) -> bool:
    begin, end = hours
    return begin <= hour < end if begin < end else hour >= begin or hour < end


def _audience(imports: Sequence[str]) -> str | None:
    packages = {name.partition(".")[0] for name in imports}
    return next((name for name, (theirs, _) in _AUDIENCES.items() if packages & theirs), None)
