"""What a worker knows of its ready sandboxes: what calls ask for, and what each is worth to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from workers.sandbox.demand import Demand
from workers.sandbox.stock import LEAST_USES, Kind

_UNASKED_RATE = 1 / 40_000
"""Calls per second that every checkpoint is taken to have at least: enough to keep one, if nobody else has use for the
room."""


@dataclass(frozen=True)
class Source:
    """What a sandbox can be started from."""

    image: Path | None
    """A checkpoint's; ``None``: a fresh Python."""
    saved_seconds: float
    """What a call saves that finds it done."""
    memory_bytes: int
    """What a ready one holds, as long as none was measured."""


class Held(NamedTuple):
    """The ready sandboxes that there are of one source."""

    amount: int
    memory_bytes: int
    """What each holds at the most; where there are none, what the last one held or is expected to."""


class Wanted:
    """Knows what is asked for of each source.

    ``sources`` are by checkpoint, ``None`` being the cold start. Not safe to use from several threads.
    """

    def __init__(self, sources: Mapping[str | None, Source], demand: Demand) -> None:
        self._sources = sources
        self._demand = demand
        # Cold starts are for the few calls that ask for them, unless there is nothing else.
        self._unasked = {checkpoint_id for checkpoint_id in sources if checkpoint_id is not None or len(sources) == 1}

    def record(self, checkpoint_id: str | None, now: float) -> None:
        """Count a call that asks for a checkpoint."""
        self._demand.record(checkpoint_id, now)

    def demand(self, new_ids: Mapping[str, str]) -> Demand:
        """Return what was asked for until now, under the ids that ``new_ids`` gives."""
        return self._demand.renamed(new_ids)

    def kinds(
        self, held: Mapping[str | None, Held], makeable: Callable[[str | None], bool], now: float
    ) -> dict[str | None, Kind]:
        """Return what there is to choose from; ``held`` has an entry for every source."""
        return {
            checkpoint_id: Kind(
                uses=self._uses(checkpoint_id, now),
                saved_seconds=source.saved_seconds,
                memory_bytes=held[checkpoint_id].memory_bytes,
                held=held[checkpoint_id].amount,
                makeable=makeable(checkpoint_id),
            )
            for checkpoint_id, source in self._sources.items()
        }

    def _uses(self, checkpoint_id: str | None, now: float) -> list[float]:
        uses = self._demand.uses(checkpoint_id, now, LEAST_USES / 2)
        if checkpoint_id in self._unasked:
            uses[0] += _UNASKED_RATE
        return uses
