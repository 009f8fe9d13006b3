"""What a start is predicted to cost: the time until a function's first line, and the choice among the ways to start.

The formula, in one unit for every way::

    restored:  restore_base + restore_per_MB · MB(c) + Σ import seconds of needed modules that c lacks
    cold:      cold_base + Σ import seconds of all needed modules

Sums are made in whole nanoseconds, so that equal costs are equal whatever the order of their parts.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

NANOSECONDS = 1_000_000_000


class Prediction(NamedTuple):
    """The predicted cost of one way to start, in seconds, by its parts."""

    checkpoint_id: str | None
    """``None``: a cold start."""
    base_seconds: float
    """What every start of this kind takes."""
    size_seconds: float
    """What the checkpoint's size adds."""
    import_seconds: float
    """What the needed modules add that the start does not bring."""

    @property
    def seconds(self) -> float:
        """The whole prediction."""
        return self.base_seconds + self.size_seconds + self.import_seconds


@dataclass(frozen=True, slots=True)
class Scores:
    """Every way to start one call with one generation."""

    checkpoints: tuple[Prediction, ...]
    """Smallest checkpoint first, those of one size by id."""
    cold: Prediction
    best: Prediction
    """The lowest; of equal ones a cold start, then the smaller checkpoint, then the lower id."""

    def of(self, checkpoint_id: str) -> Prediction | None:
        """Return the prediction for one checkpoint, ``None`` when the generation has no such checkpoint."""
        return next((score for score in self.checkpoints if score.checkpoint_id == checkpoint_id), None)


def id_order(checkpoint_id: str) -> tuple[tuple[int, str | int], ...]:
    """Return the sort key that puts ``checkpoint_2`` before ``checkpoint_10``."""
    return tuple(
        (0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"([0-9]+)", checkpoint_id) if part
    )


def to_nanoseconds(seconds: float) -> int:
    """Return whole nanoseconds."""
    return round(seconds * NANOSECONDS)


def cheapest(costs: Iterable[int]) -> int:
    """Return the position of the lowest cost, the first of equal ones."""
    position, _ = min(enumerate(costs), key=lambda item: item[1])
    return position
