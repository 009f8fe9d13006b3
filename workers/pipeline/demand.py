"""A corpus in the terms of a catalogue, made ready for costing many sets of modules.

A set of modules is an ``int`` with one bit for each *atom*: modules that every name of the corpus needs, and every
given image holds, either all or none of. Costs of a set are sums over its atoms, taken from tables with an entry for
every value of each eight bits.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import getitem, mul

from readie.generations.models import ExpectedStart
from readie.protocol.catalogue import Catalogue, Cost, Module
from workers.pipeline.corpus import Corpus
from workers.pipeline.cost import restore_seconds

_REMEMBERED_SETS = 20_000


@dataclass(frozen=True)
class Call:
    """Calls that need the same modules."""

    names: tuple[str, ...]
    """The catalogue's modules nearest to the names in the corpus."""
    needs: int
    """All they need, as a set."""
    share: float
    """Of all calls; the shares add up to 1."""


class Demand:
    """The calls of a corpus and what they cost with any image.

    ``names`` are the modules that calls name, ``closures`` what each needs as a set. Sets that are not unions of these
    are exact only for the modules in ``images``.
    """

    def __init__(self, modules: Mapping[str, Module], corpus: Corpus, images: Sequence[Collection[str]] = ()) -> None:
        wanted: dict[frozenset[str], float] = {}
        for found in corpus.sets:
            names = frozenset(name for hint in found.imports if (name := resolve(hint, modules)) is not None)
            wanted[names] = wanted.get(names, 0.0) + found.weight
        self.names = sorted(frozenset[str]().union(*wanted))
        modules_of = {name: closure(name, modules) for name in self.names}
        needed_by: dict[str, int] = {}
        for position, name in enumerate(self.names):
            for module in modules_of[name]:
                needed_by[module] = needed_by.get(module, 0) | 1 << position
        bits: dict[tuple[object, ...], int] = {}
        self._bit_of = {
            module: bits.setdefault((by, *(module in image for image in images)), len(bits))
            for module, by in sorted(needed_by.items())
        }
        seconds, megabytes = [0.0] * len(bits), [0.0] * len(bits)
        for module, bit in self._bit_of.items():
            seconds[bit] += modules[module].import_seconds
            megabytes[bit] += modules[module].megabytes
        self._seconds, self._megabytes = _Sums(seconds), _Sums(megabytes)
        self.closures = {name: self.set_of(modules_of[name]) for name in self.names}
        total = sum(wanted.values())
        self.calls = [Call(tuple(sorted(names)), self.union(names), weight / total) for names, weight in wanted.items()]
        self.shares = [call.share for call in self.calls]
        self._needs = [call.needs for call in self.calls]
        self.import_seconds = lru_cache(_REMEMBERED_SETS)(self._import_seconds)

    def set_of(self, modules: Iterable[str]) -> int:
        """Return ``modules`` as a set; those that no call needs are left out."""
        found = 0
        for module in modules:
            if module in self._bit_of:
                found |= 1 << self._bit_of[module]
        return found

    def union(self, names: Iterable[str]) -> int:
        """Return all that these of ``self.names`` need."""
        found = 0
        for name in names:
            found |= self.closures[name]
        return found

    def megabytes(self, held: int) -> float:
        """Return the memory that importing the set ``held`` takes."""
        return self._megabytes.of(held)

    def _import_seconds(self, held: int) -> list[float]:
        """Return for each call the seconds of the imports that it needs and an image with ``held`` lacks."""
        lacks = ~held
        return [self._seconds.of(needs & lacks) for needs in self._needs]

    def cold_seconds(self, cost: Cost) -> list[float]:
        """Return the predicted cold start of each call."""
        return [cost.cold_base_seconds + seconds for seconds in self.import_seconds(0)]

    def mean_cold(self, cost: Cost) -> float:
        """Return the mean predicted cold start."""
        return self.mean(self.cold_seconds(cost))

    def start_seconds(self, cost: Cost, held: int, megabytes: float) -> list[float]:
        """Return the predicted start of each call from an image of ``megabytes`` that holds ``held``."""
        restore = restore_seconds(cost, megabytes)
        return [restore + seconds for seconds in self.import_seconds(held)]

    def mean(self, seconds: Sequence[float]) -> float:
        """Return the mean over all calls of what is given for each."""
        return math.fsum(map(mul, self.shares, seconds))


def expected(catalogue: Catalogue, corpus: Corpus) -> ExpectedStart:
    """Return what a router that has ``catalogue`` predicts for the calls of ``corpus``, on average."""
    demand = Demand(catalogue.modules, corpus, [frozenset(checkpoint.holds) for checkpoint in catalogue.checkpoints])
    cost = catalogue.cost
    starts = {"cold": demand.cold_seconds(cost)}
    empty = dict(starts)
    for checkpoint in catalogue.checkpoints:
        starts[checkpoint.id] = demand.start_seconds(cost, demand.set_of(checkpoint.holds), checkpoint.megabytes)
        if not checkpoint.imported:
            empty[checkpoint.id] = starts[checkpoint.id]
    return ExpectedStart(
        cold_seconds=demand.mean_cold(cost),
        empty_seconds=demand.mean(best(empty.values())),
        planned_seconds=demand.mean(best(starts.values())),
    )


def best(starts: Iterable[Sequence[float]]) -> list[float]:
    """Return for each call the lowest of its starts, of which ``starts`` has a list for each way."""
    return list(map(min, zip(*starts, strict=True)))


def resolve(hint: str, modules: Mapping[str, object]) -> str | None:
    """Return the nearest of ``modules``: of ``a.b.C`` the first of ``a.b.C``, ``a.b``, ``a``; ``None`` for none."""
    name = hint
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


def closure(name: str, modules: Mapping[str, Module]) -> set[str]:
    """Return ``name`` and all that its import brings in."""
    found: set[str] = set()
    pending = [name]
    while pending:
        module = pending.pop()
        if module in modules and module not in found:
            found.add(module)
            pending.extend(modules[module].dependencies)
    return found


class _Sums:
    """Sums of numbers over sets of bits."""

    def __init__(self, numbers: Sequence[float]) -> None:
        self._tables = [_subset_sums(numbers[start : start + 8]) for start in range(0, len(numbers), 8)]

    def of(self, bits: int) -> float:
        return sum(map(getitem, self._tables, bits.to_bytes(len(self._tables), "little")))


def _subset_sums(numbers: Sequence[float]) -> list[float]:
    sums = [0.0]
    for number in numbers:
        sums += [before + number for before in sums]
    return sums
