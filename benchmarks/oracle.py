"""The mean start that no policy can beat, however well it knows the future.

The oracle knows every call of the week. Its memory for ready sandboxes is that of all workers together, and so are the
threads that fill it; it can hold fractions of a sandbox and make each in the least time for its size. What is left to
it is a bucket of megabytes, full at first, refilled at a rate, from which each call takes what its sandbox holds. A
call may do with a smaller sandbox that lacks some of its imports, or with none: then it restores the best checkpoint
in a created sandbox, of which there is always one. Where the bucket would run dry, what saves least for its size is
given up, of all calls since the bucket was full; it may be given up in part. Each of these is at least as good as what
a real cluster can do, so the mean is a bound.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from readie.protocol.call import ImportHints
from router.catalogue import CompiledCatalogue
from workers.sandbox.wanted import Source

from .simulated import Costs
from .week import Week


class Saving(NamedTuple):
    """What more memory saves a call."""

    megabytes: float
    seconds: float

    @property
    def density(self) -> float:
        """Seconds for each megabyte."""
        return self.seconds / self.megabytes


def oracle_starts(
    week: Week,
    catalogue: CompiledCatalogue,
    sources: Mapping[str | None, Source],
    restore_seconds: Mapping[str | None, float],
    costs: Costs,
    *,
    workers: int,
    ready_bytes: int,
) -> list[float]:
    """Return the start of each call of the week, in seconds."""
    without: list[float] = []
    savings: list[list[Saving]] = []
    for hints in week.kinds:
        least, options = _options(hints, catalogue, sources, restore_seconds, costs)
        without.append(least)
        savings.append(hull(least, options))
    fill_rate = workers * max(
        source.memory_bytes / 1e6 / (restore_seconds[name] + costs.ready_seconds) for name, source in sources.items()
    )
    given = draw([(call.at_seconds, savings[call.kind]) for call in week.calls], workers * ready_bytes / 1e6, fill_rate)
    return [without[call.kind] - saved for call, saved in zip(week.calls, given, strict=True)]


def _options(
    hints: ImportHints,
    catalogue: CompiledCatalogue,
    sources: Mapping[str | None, Source],
    restore_seconds: Mapping[str | None, float],
    costs: Costs,
) -> tuple[float, list[tuple[float, float]]]:
    """Return the fastest start without a ready sandbox, and (megabytes, seconds) with each."""
    starts = catalogue.scores(hints).starts
    lacking = {start.checkpoint_id: costs.ready_seconds + start.import_seconds for start in starts}
    least = min(seconds + restore_seconds[name] for name, seconds in lacking.items())
    return least, [(sources[name].memory_bytes / 1e6, seconds) for name, seconds in lacking.items()]


def hull(without_seconds: float, options: Sequence[tuple[float, float]]) -> list[Saving]:
    """Return the steps by which ever more memory saves ever less for its size, from none on."""
    steps: list[Saving] = []
    at_megabytes, at_seconds = 0.0, without_seconds
    while True:
        better = [(megabytes, seconds) for megabytes, seconds in options if seconds < at_seconds]
        if not better:
            return steps
        megabytes, seconds = max(
            better,
            key=lambda option: (
                (at_seconds - option[1]) / max(option[0] - at_megabytes, 1e-9),
                option[0],
            ),
        )
        if megabytes > at_megabytes:
            steps.append(Saving(megabytes - at_megabytes, at_seconds - seconds))
        at_megabytes, at_seconds = megabytes, seconds


def draw(calls: Sequence[tuple[float, Sequence[Saving]]], depth: float, rate: float) -> list[float]:
    """Return the seconds that each call saves.

    Args:
        calls: when each comes, in order, and what it may save.
        depth: of the bucket, in megabytes.
        rate: of its filling, in megabytes a second.
    """
    saved = [0.0] * len(calls)
    level, before = depth, 0.0
    taken: list[tuple[float, int, float]] = []
    for number, (at, steps) in enumerate(calls):
        level += (at - before) * rate
        before = at
        if level >= depth:
            level = depth
            taken.clear()
        for step in steps:
            level -= step.megabytes
            saved[number] += step.seconds
            heapq.heappush(taken, (step.density, number, step.megabytes))
        while level < 0:
            density, loser, megabytes = heapq.heappop(taken)
            given_up = min(megabytes, -level)
            level += given_up
            saved[loser] -= given_up * density
            if given_up < megabytes:
                heapq.heappush(taken, (density, loser, megabytes - given_up))
    return saved
