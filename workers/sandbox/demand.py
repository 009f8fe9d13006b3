"""How often sandboxes of each checkpoint are asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Self

HALF_LIFE_SECONDS = 300.0


class Demand:
    """Rates by checkpoint (``None``: cold starts) in which a request counts half after ``half_life_seconds``.

    Times are of any one clock, in seconds, and must not go back. Not safe to use from several threads.
    """

    def __init__(
        self,
        half_life_seconds: float = HALF_LIFE_SECONDS,
        weights: Mapping[str | None, tuple[float, float]] = MappingProxyType({}),
    ) -> None:
        """Begin with what is known: by checkpoint, what its requests count all together, and as of which time."""
        self._half_life_seconds = half_life_seconds
        self._weights = dict(weights)

    def record(self, checkpoint_id: str | None, now: float) -> None:
        """Count a request."""
        self._weights[checkpoint_id] = (self._weight(checkpoint_id, now) + 1.0, now)

    def rate(self, checkpoint_id: str | None, now: float) -> float:
        """Return requests per second."""
        return self._weight(checkpoint_id, now) * math.log(2) / self._half_life_seconds

    def renamed(self, new_ids: Mapping[str, str]) -> Self:
        """Return a copy in which ``new_ids`` gives the ids; a checkpoint without a new one is forgotten."""
        ids: dict[str | None, str | None] = {None: None} | dict(new_ids)
        weights = {ids[old]: weight for old, weight in self._weights.items() if old in ids}
        return type(self)(self._half_life_seconds, weights)

    def _weight(self, checkpoint_id: str | None, now: float) -> float:
        weight, at = self._weights.get(checkpoint_id, (0.0, now))
        return weight * math.exp2((at - now) / self._half_life_seconds)
