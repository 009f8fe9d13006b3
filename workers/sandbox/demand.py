"""How often sandboxes of each checkpoint are asked for, and how many at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Self

HALF_LIFE_SECONDS = 1800.0
_SHAPE_HALF_LIFE_SECONDS = 86_400.0
"""How calls come together changes less than how many there are."""
_REPLACEMENT_SECONDS = 1.0
"""About what it takes until a ready sandbox that was taken is there again."""
_MOST_AT_ONCE = 64
_SHARED_REQUESTS = 20.0
"""As long as a checkpoint had fewer requests, more is known from how those for all checkpoints come together."""


@dataclass(slots=True)
class _Asked:
    """Requests until a time, older ones for less."""

    at: float
    weight: float = 0.0
    """Of all; of it follows the rate."""
    missing: float = 0.0
    """Sandboxes that were taken and, one after the other, would not have been replaced yet."""
    reached: list[float] = field(default_factory=list)
    """Requests that needed a first sandbox at hand, a second one ..."""

    def copy(self) -> _Asked:
        return replace(self, reached=list(self.reached))


class Demand:
    """Rates by checkpoint (``None``: cold starts) in which a request counts half after ``half_life_seconds``.

    Times are of any one clock, in seconds, and must not go back. Not safe to use from several threads.
    """

    def __init__(
        self,
        half_life_seconds: float = HALF_LIFE_SECONDS,
        asked: Mapping[str | None, _Asked] = MappingProxyType({}),
        of_all: _Asked | None = None,
    ) -> None:
        """Begin with what is known."""
        self._half_life_seconds = half_life_seconds
        self._asked = {checkpoint_id: known.copy() for checkpoint_id, known in asked.items()}
        self._of_all = of_all.copy() if of_all else _Asked(0.0)

    def record(self, checkpoint_id: str | None, now: float) -> None:
        """Count a request."""
        asked = self._asked.setdefault(checkpoint_id, _Asked(now))
        asked.missing = min(max(0.0, asked.missing - (now - asked.at) / _REPLACEMENT_SECONDS) + 1.0, _MOST_AT_ONCE)
        asked.weight = self._weight(asked, now) + 1.0
        for known in (asked, self._of_all):
            _count(known.reached, math.ceil(asked.missing), math.exp2((known.at - now) / _SHAPE_HALF_LIFE_SECONDS))
            known.at = now

    def rate(self, checkpoint_id: str | None, now: float) -> float:
        """Return requests per second."""
        asked = self._asked.get(checkpoint_id)
        return self._weight(asked, now) * math.log(2) / self._half_life_seconds if asked else 0.0

    def uses(self, checkpoint_id: str | None, now: float, least: float) -> list[float]:
        """Return how many requests per second need a first ready sandbox at hand, a second one ... while they do.

        Those that fewer than ``least`` need are left out.
        """
        rate = self.rate(checkpoint_id, now)
        asked = self._asked.get(checkpoint_id)
        own = asked.reached if asked else []
        of_all = self._of_all.reached
        uses = [rate]
        if of_all and rate > least:
            requests = (own[0] if own else 0.0) + _SHARED_REQUESTS
            prior = _SHARED_REQUESTS / of_all[0]
            for position in range(1, len(of_all)):
                reached = prior * of_all[position] + (own[position] if position < len(own) else 0.0)
                if (used := rate * reached / requests) < least:
                    break
                uses.append(used)
        return uses

    def renamed(self, new_ids: Mapping[str, str]) -> Self:
        """Return a copy in which ``new_ids`` gives the ids; a checkpoint without a new one is forgotten."""
        ids: dict[str | None, str | None] = {None: None} | dict(new_ids)
        asked = {ids[old]: known for old, known in self._asked.items() if old in ids}
        return type(self)(self._half_life_seconds, asked, self._of_all)

    def _weight(self, asked: _Asked, now: float) -> float:
        return asked.weight * math.exp2((asked.at - now) / self._half_life_seconds)


def _count(reached: list[float], needed: int, fading: float) -> None:
    """Let the counts fade, and add a request that needed so many sandboxes at hand."""
    reached += [0.0] * (needed - len(reached))
    for position, count in enumerate(reached):
        reached[position] = count * fading + (position < needed)
