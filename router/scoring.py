"""What a start is predicted to cost: the time until a function's first line, and the choice among the ways to start.

The formula, in one unit for every way::

    ready:     Σ import seconds of needed modules that c (or a cold start) lacks
    restored:  restore_base + restore_per_MB · MB(c) + Σ import seconds of needed modules that c lacks
    cold:      cold_base + Σ import seconds of all needed modules

Sums are made in whole nanoseconds, so that equal costs are equal whatever the order of their parts.
"""

import re
from collections.abc import Iterable, Mapping
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
    ready: bool = False
    """It was done ahead: the sandbox waits."""

    def from_ready(self) -> "Prediction":
        """Return what it costs when a sandbox waits that was started in this way."""
        return Prediction(self.checkpoint_id, 0.0, 0.0, self.import_seconds, ready=True)

    @property
    def seconds(self) -> float:
        """The whole prediction."""
        return self.base_seconds + self.size_seconds + self.import_seconds


@dataclass(frozen=True, slots=True)
class Scores:
    """Every way to start one call with one generation."""

    starts: tuple[Prediction, ...]
    """The cold start, then every checkpoint, the smallest first and those of one size by id."""
    position: Mapping[str | None, int]
    """Where each checkpoint is in ``starts``; ``None``: the cold start."""
    best: Prediction
    """The lowest; of equal ones the first."""

    @property
    def cold(self) -> Prediction:
        """The cold start."""
        return self.starts[0]

    @property
    def checkpoints(self) -> tuple[Prediction, ...]:
        """The checkpoints."""
        return self.starts[1:]


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
