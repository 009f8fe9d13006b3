"""Choosing what the checkpoints of a generation import. Data in, data out.

The objective is the mean predicted start over a corpus, where each call takes the best of its ways to start: cold, from
the empty checkpoint, or from any of the planned ones. A greedy choice, set by set, is followed by local search: each of
them in turn is exchanged for the best of its neighbours, or given up for others in its place, until nothing is better.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from readie.protocol.catalogue import Cost
from workers.pipeline.demand import Demand

RARE_SHARE: Final = 0.002
"""A name that a smaller share of calls uses is in no image for its own sake.

Its calls still count, and still take the image that suits them best, but no image is made larger for them: what is seen
that rarely in a corpus says little of the calls to come, and every other call of the image would pay for its size.
"""
LEAST_GAIN: Final = 0.001
"""A set that lowers the mean predicted start by a smaller share of it is not worth its place on the disk."""
_MOST_ROUNDS: Final = 20
_MOST_PAIRED: Final = 30
_SLACK: Final = 1e-9
"""Sums of floating-point numbers differ by the order of their parts; what is smaller is no gain."""


@dataclass(frozen=True)
class Limits:
    """What a plan may use besides the empty checkpoint."""

    checkpoints: int = 15
    megabytes: float = 4096.0
    """Of all of them together, as predicted."""


@dataclass(frozen=True)
class PlannedSet:
    """What one checkpoint imports."""

    names: tuple[str, ...]
    megabytes: float
    """Predicted."""


@dataclass(frozen=True)
class Plan:
    """The sets to capture, the most useful first, and what is expected of them."""

    sets: tuple[PlannedSet, ...]
    mean_seconds: float
    """Predicted start, over all calls."""


@dataclass(frozen=True)
class _Image:
    names: frozenset[str]
    megabytes: float
    starts: list[float] = field(compare=False, repr=False)
    """Of each call."""


def plan(
    demand: Demand,
    cost: Cost,
    *,
    empty_megabytes: float,
    limits: Limits,
    unfit: Iterable[str] = (),
) -> Plan:
    """Return the sets that make the mean predicted start of ``demand`` low.

    Args:
        demand: the calls, and what modules cost.
        cost: what starts cost.
        empty_megabytes: of the empty checkpoint, which every image has in it.
        limits: of the sets together.
        unfit: names that no image may hold.
    """
    return _Planner(demand, cost, empty_megabytes, limits, frozenset(unfit)).plan()


class _Planner:
    def __init__(
        self, demand: Demand, cost: Cost, empty_megabytes: float, limits: Limits, unfit: frozenset[str]
    ) -> None:
        self._demand = demand
        self._cost = cost
        self._empty_megabytes = empty_megabytes
        self._limits = limits
        self._images: dict[frozenset[str], _Image] = {}
        share = dict.fromkeys(demand.names, 0.0)
        for call in demand.calls:
            for name in call.names:
                share[name] += call.share
        usable = {name for name, part in share.items() if part >= RARE_SHARE and name not in unfit}
        self._names = sorted(usable)
        wanted = {frozenset(usable.intersection(call.names)) for call in demand.calls}
        wanted |= {frozenset({name}) for name in usable}
        self._pool = [self._image(names) for names in sorted(map(sorted, wanted)) if names]
        self._cold = demand.cold_seconds(cost)
        self._empty = demand.start_seconds(cost, 0, empty_megabytes)
        useful = sorted(self._pool, key=lambda image: self._mean([image]))[:_MOST_PAIRED]
        pairs = [self._image(one.names | other.names) for one, other in combinations(useful, 2)]
        self._pool = list({image.names: image for image in (*self._pool, *pairs)}.values())

    def plan(self) -> Plan:
        # Where memory is short, what gains most for its size is the better beginning; else what gains most.
        begun = [self._greedy([], per_megabyte=per_megabyte) for per_megabyte in (False, True)]
        chosen = min((self._improve(images) for images in begun), key=self._mean)
        return Plan(
            tuple(PlannedSet(tuple(sorted(image.names)), image.megabytes) for image in self._by_use(chosen)),
            self._mean(chosen),
        )

    def _improve(self, chosen: list[_Image]) -> list[_Image]:
        for _ in range(_MOST_ROUNDS):
            before = self._mean(chosen)
            chosen = self._replace_each(self._exchange_each(chosen))
            if self._mean(chosen) >= before - _SLACK:
                break
        return chosen

    def _image(self, names: Iterable[str]) -> _Image:
        key = frozenset(names)
        if key not in self._images:
            held = self._demand.union(key)
            # What the set brings with it is named as well, where calls name it.
            named = frozenset(name for name in self._names if not self._demand.closures[name] & ~held)
            megabytes = self._empty_megabytes + self._demand.megabytes(held)
            image = _Image(named, megabytes, self._demand.start_seconds(self._cost, held, megabytes))
            self._images[key] = self._images.setdefault(named, image)
        return self._images[key]

    def _greedy(
        self, chosen: list[_Image], *, per_megabyte: bool = False, without: _Image | None = None
    ) -> list[_Image]:
        """Add the set that gains most (for each megabyte of it), as long as there is room and it gains enough."""
        chosen = list(chosen)
        while len(chosen) < self._limits.checkpoints:
            starts = self._best(chosen)
            before, room = self._demand.mean(starts), self._room(chosen)
            added, most = None, 0.0
            for image in self._pool:
                if image.megabytes <= room and image is not without:
                    gain = before - self._demand.mean(list(map(min, starts, image.starts)))
                    worth = gain / image.megabytes if per_megabyte else gain
                    if gain >= before * LEAST_GAIN and worth > most:
                        added, most = image, worth
            if added is None:
                break
            chosen.append(added)
        return chosen

    def _replace_each(self, chosen: list[_Image]) -> list[_Image]:
        """Try each set's place, and the room that it takes, for any number of others."""
        for image in list(chosen):
            others = [other for other in chosen if other is not image]
            tried = [self._greedy(others, per_megabyte=way, without=image) for way in (False, True)]
            chosen = min([chosen, self._greedy(chosen), *tried], key=self._mean)
        return chosen

    def _exchange_each(self, chosen: list[_Image]) -> list[_Image]:
        for position in range(len(chosen)):
            image = chosen[position]
            others = chosen[:position] + chosen[position + 1 :]
            starts = self._best(others)
            mean = self._demand.mean(list(map(min, starts, image.starts)))
            better = self._best_of(self._neighbours(image), starts, self._room(others), mean - _SLACK)
            if better is not None:
                chosen = [*chosen[:position], better, *chosen[position + 1 :]]
        return chosen

    def _neighbours(self, image: _Image) -> Iterable[_Image]:
        """Yield every set of the pool, alone and together with ``image``, and ``image`` with a name more or less."""
        for other in self._pool:
            yield other
            yield self._image(image.names | other.names)
        for name in sorted(image.names):
            # Without all that needs the name: it would come back with these.
            closure = self._demand.closures[name]
            yield self._image({kept for kept in image.names if closure & ~self._demand.closures[kept]})

    def _best_of(self, images: Iterable[_Image], starts: Sequence[float], room: float, below: float) -> _Image | None:
        """Return the set with the lowest mean start, given the others' ``starts``; ``None`` when none is ``below``."""
        best = None
        for image in images:
            if image.names and image.megabytes <= room:
                mean = self._demand.mean(list(map(min, starts, image.starts)))
                if mean < below:
                    best, below = image, mean
        return best

    def _best(self, chosen: Iterable[_Image]) -> list[float]:
        return list(map(min, self._cold, self._empty, *(image.starts for image in chosen)))

    def _mean(self, chosen: Iterable[_Image]) -> float:
        return self._demand.mean(self._best(chosen))

    def _room(self, chosen: Iterable[_Image]) -> float:
        return self._limits.megabytes - sum(image.megabytes for image in chosen)

    def _by_use(self, chosen: list[_Image]) -> list[_Image]:
        """Return the sets in the order in which a greedy choice among them alone takes them."""
        ordered: list[_Image] = []
        left = list(chosen)
        while left:
            starts = self._best(ordered)
            first: Callable[[_Image], float] = lambda image: self._demand.mean(  # noqa: E731
                list(map(min, starts, image.starts))  # noqa: B023
            )
            ordered.append(min(left, key=first))
            left.remove(ordered[-1])
        return ordered
