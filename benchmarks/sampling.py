"""What samples say: medians, percentiles, and how sure a ratio of medians is."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_RESAMPLES = 2000
_MOST_RESAMPLED = 200
"""Of longer series each resample takes so many: the interval is then wider than need be, never narrower."""


@dataclass(frozen=True)
class RatioOfMedians:
    """A ratio and the ends of its 95 % interval, by bootstrap."""

    value: float
    low: float
    high: float


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile, between two samples where it lies there."""
    ordered = sorted(values)
    at = (len(ordered) - 1) * percent / 100
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


def ratio_of_medians(values: Sequence[float], others: Sequence[float]) -> RatioOfMedians:
    """Return the median of ``values`` divided by that of ``others``."""
    chance = random.Random(1)

    def resampled(series: Sequence[float]) -> float:
        return statistics.median(chance.choices(series, k=min(len(series), _MOST_RESAMPLED)))

    ratios = [resampled(values) / resampled(others) for _ in range(_RESAMPLES)]
    return RatioOfMedians(
        statistics.median(values) / statistics.median(others), percentile(ratios, 2.5), percentile(ratios, 97.5)
    )
