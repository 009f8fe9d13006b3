"""Which ready sandboxes are worth their memory. Data in, data out.

The k-th ready sandbox of a checkpoint saves a call its restore when at least k calls for that checkpoint come soon.
With calls that come by chance at a known rate, its worth is::

    saved seconds · P(at least k calls within a minute) / bytes it holds

The worthiest are kept as long as they fit the budget. One that would hardly ever help is not kept, however much room
there is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

HORIZON_SECONDS = 60.0
LEAST_PROBABILITY = 0.01
_HELD_BONUS = 1.25
"""What is there counts for more than what must be made first, so that small changes of demand move nothing."""
_MOST_EXPECTED_CALLS = 700.0
"""Above it, the probability of no call at all is no longer a floating-point number."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Ready sandboxes of one checkpoint."""

    rate: float
    """Calls per second."""
    saved_seconds: float
    """What a call saves that finds one."""
    memory_bytes: int
    """What each holds; positive."""
    held: int
    """How many there are."""
    makeable: bool = True
    """Whether another one can be made now."""


class Step(NamedTuple):
    """One thing to do; ``checkpoint_id`` is ``None`` for the kind that starts cold."""

    action: Literal["make", "evict"]
    checkpoint_id: str | None


def plan(kinds: Mapping[str | None, Kind], budget_bytes: int) -> list[str | None]:
    """Return the ready sandboxes to have, by checkpoint, the worthiest first.

    All together hold ``budget_bytes`` at the most. A higher rate or more saved seconds never give a checkpoint fewer.
    """
    units = [
        (-worth, order, position, checkpoint_id)
        for order, (checkpoint_id, kind) in enumerate(kinds.items())
        for position, worth in enumerate(islice(_worths(kind), _most(kind, budget_bytes)), start=1)
    ]
    planned: list[str | None] = []
    for _, _, _, checkpoint_id in sorted(units, key=lambda unit: unit[:3]):
        if (size := kinds[checkpoint_id].memory_bytes) <= budget_bytes:
            budget_bytes -= size
            planned.append(checkpoint_id)
    return planned


def next_step(kinds: Mapping[str | None, Kind], budget_bytes: int) -> Step | None:
    """Return what brings the ready sandboxes nearer to the plan, ``None`` when they are as planned.

    Of what is missing, the likeliest asked for comes first.
    """
    counts = Counter(plan(kinds, budget_bytes))
    for name, kind in kinds.items():
        if kind.held > counts[name]:
            return Step("evict", name)
    missing = [name for name, count in counts.items() if count > kinds[name].held]
    if not missing:
        return None
    return Step("make", max(missing, key=lambda name: _probability_of_next(kinds[name])))


def _most(kind: Kind, budget_bytes: int) -> int:
    fitting = budget_bytes // kind.memory_bytes
    return fitting if kind.makeable else min(kind.held, fitting)


def _worths(kind: Kind) -> Iterator[float]:
    """Yield the worth of the first, the second ... sandbox of a kind, as long as it helps often enough."""
    for position, probability in enumerate(_probabilities(kind.rate * HORIZON_SECONDS), start=1):
        bonus = _HELD_BONUS if position <= kind.held else 1.0
        if bonus * probability < LEAST_PROBABILITY:
            return
        yield bonus * kind.saved_seconds * probability / kind.memory_bytes


def _probability_of_next(kind: Kind) -> float:
    return next(islice(_probabilities(kind.rate * HORIZON_SECONDS), kind.held, None))


def _probabilities(mean: float) -> Iterator[float]:
    """Yield the probabilities of at least 1, 2 ... events when ``mean`` are expected (Poisson)."""
    mean = min(mean, _MOST_EXPECTED_CALLS)
    exactly = math.exp(-mean)
    at_least = 1.0 - exactly
    for count in range(1, 1 << 30):
        yield at_least
        exactly *= mean / count
        at_least = max(0.0, at_least - exactly)
