"""Which ready sandboxes are worth their memory. Data in, data out.

The k-th ready sandbox of a checkpoint saves a call its restore whenever calls for that checkpoint come so close
together that k are needed before another could be made. Its worth is::

    saved seconds · how often that happens / bytes it holds

The worthiest are kept as long as they fit the budget. One that would hardly ever help is not kept, however much room
there is.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

LEAST_USES = 1 / 50_000
"""Calls per second that a ready sandbox must help to be kept."""
_HELD_BONUS = 1.25
"""What is there counts for more than what must be made first, so that small changes of demand move nothing."""


class Kind(NamedTuple):
    """Ready sandboxes of one checkpoint."""

    uses: Sequence[float]
    """How many calls per second need the first of them, the second ...; never more than the one before."""
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

    All together hold ``budget_bytes`` at the most. More uses or more saved seconds never give a checkpoint fewer.
    """
    # The next one of each kind: as later ones are worth less, the worthiest of all is always among them.
    heads = [(-_worth(kind, 0), order, name, 0) for order, (name, kind) in enumerate(kinds.items())]
    heapq.heapify(heads)
    planned: list[str | None] = []
    while heads:
        worth, order, name, position = heads[0]
        kind = kinds[name]
        if worth == 0.0 or kind.memory_bytes > budget_bytes:
            heapq.heappop(heads)
        else:
            budget_bytes -= kind.memory_bytes
            planned.append(name)
            heapq.heapreplace(heads, (-_worth(kind, position + 1), order, name, position + 1))
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
    return Step("make", max(missing, key=lambda name: kinds[name].uses[kinds[name].held]))


def _worth(kind: Kind, position: int) -> float:
    """Return what a byte of one more saves in a second, when there are ``position`` of the kind; 0: it is not kept."""
    held = position < kind.held
    if position >= len(kind.uses) or not (held or kind.makeable):
        return 0.0
    uses = kind.uses[position] * (_HELD_BONUS if held else 1.0)
    return kind.saved_seconds * uses / kind.memory_bytes if uses >= LEAST_USES else 0.0
