"""A catalogue made ready for scoring: names to modules, modules to their closure, closures to costs.

Scoring is on the way of every call, so what does not depend on the call is computed once per catalogue:

*Groups.* Modules that always come together (a package and what its import loads of itself) have the same closure.
A set of needed modules is an ``int`` with one bit per group, and a union is ``|``.

*Packed costs.* What a group costs differs by checkpoint: one that holds it saves its import. The costs of a group for
every checkpoint, and for a cold start, are fields of one wide ``int``, so that one addition adds them all. A field is
wide enough for the sum of all modules and can't run over into the next.

*Tables.* For each eight groups, the packed costs of all their 256 subsets. The costs of a needed set are the sum of one
entry per byte of it.
"""

from collections.abc import Collection, Sequence
from functools import lru_cache
from operator import getitem
from typing import Final, NamedTuple

from readie.protocol.call import ImportHints
from readie.protocol.catalogue import Catalogue

from .scoring import NANOSECONDS, Prediction, Scores, cheapest, id_order, to_nanoseconds

REMEMBERED_HINTS: Final = 1024
"""Sets of hints whose scores are kept: programs call the same functions again and again."""


class Resolution(NamedTuple):
    """What a call needs, in the catalogue's terms."""

    modules: tuple[str, ...]
    """Catalogued modules nearest to the hints, sorted."""
    unknown: tuple[str, ...]
    """Hints of which the catalogue knows no part, sorted."""


class CompiledCatalogue:
    """Scores the checkpoints of one generation. Immutable but for its memory of recent scores.

    Args:
        catalogue: the generation's summary. Dependencies that it does not list as modules cost nothing.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self.generation = catalogue.generation
        names = sorted(catalogue.modules)
        position = {name: index for index, name in enumerate(names)}
        depends_on = [
            [position[name] for name in catalogue.modules[module].dependencies if name in position] for module in names
        ]
        group_of_closure: dict[int, int] = {}
        group = [group_of_closure.setdefault(closure, len(group_of_closure)) for closure in _closures(depends_on)]
        group_depends_on: list[set[int]] = [set() for _ in group_of_closure]
        for index, needs in enumerate(depends_on):
            group_depends_on[group[index]].update(group[need] for need in needs)
        closures = _closures(group_depends_on)
        self._needs = {name: closures[group[index]] for index, name in enumerate(names)}
        self._group = {name: 1 << group[index] for index, name in enumerate(names)}

        checkpoints = sorted(
            catalogue.checkpoints, key=lambda checkpoint: (checkpoint.megabytes, id_order(checkpoint.id), checkpoint.id)
        )
        self.checkpoint_ids = tuple(checkpoint.id for checkpoint in checkpoints)
        base = to_nanoseconds(catalogue.cost.restore_base_seconds)
        sizes = [
            to_nanoseconds(catalogue.cost.restore_seconds_per_megabyte * checkpoint.megabytes)
            for checkpoint in checkpoints
        ]
        cold_base = to_nanoseconds(catalogue.cost.cold_base_seconds)
        # The cold start comes first: of equally fast ways it is the one that can't fail.
        self._fixed = [cold_base, *(base + size for size in sizes)]
        self._parts: list[tuple[str | None, float, float]] = [
            (None, cold_base / NANOSECONDS, 0.0),
            *(
                (checkpoint.id, base / NANOSECONDS, size / NANOSECONDS)
                for checkpoint, size in zip(checkpoints, sizes, strict=True)
            ),
        ]

        self._position = {checkpoint_id: index for index, (checkpoint_id, _, _) in enumerate(self._parts)}

        imports = [to_nanoseconds(catalogue.modules[name].import_seconds) for name in names]
        field_bits = sum(imports).bit_length() + 1
        self._field = (1 << field_bits) - 1
        self._shifts = [field_bits * index for index in range(len(checkpoints) + 1)]
        held = [frozenset[str](), *(frozenset(checkpoint.holds) for checkpoint in checkpoints)]
        self._held = {checkpoint.id: holds for checkpoint, holds in zip(checkpoints, held[1:], strict=True)}
        packed = [0] * len(closures)
        for index, name in enumerate(names):
            packed[group[index]] += sum(
                imports[index] << shift for shift, holds in zip(self._shifts, held, strict=True) if name not in holds
            )
        self._tables = [_subset_sums(packed[start : start + 8]) for start in range(0, len(packed), 8)]
        self.scores = lru_cache(REMEMBERED_HINTS)(self._scores)

    def resolve(self, hints: ImportHints) -> Resolution:
        """Return the nearest known module of every hinted name: of ``a.b.C`` the first of ``a.b.C``, ``a.b``, ``a``."""
        known: set[str] = set()
        unknown: set[str] = set()
        for hint in hints.imports:
            name = hint
            while name and name not in self._needs:
                name = name.rpartition(".")[0]
            if name:
                known.add(name)
            else:
                unknown.add(hint)
        return Resolution(tuple(sorted(known)), tuple(sorted(unknown)))

    def score(self, resolution: Resolution) -> Scores:
        """Return the predicted cost of every way to start a call that needs these modules with all they depend on."""
        needed = self._needed(resolution).to_bytes(len(self._tables), "little")
        packed = sum(map(getitem, self._tables, needed))
        field = self._field
        imports = [packed >> shift & field for shift in self._shifts]
        best = cheapest([fixed + missing for fixed, missing in zip(self._fixed, imports, strict=True)])
        starts = tuple(
            Prediction(*parts, missing / NANOSECONDS) for parts, missing in zip(self._parts, imports, strict=True)
        )
        return Scores(starts, self._position, starts[best])

    def missing(self, resolution: Resolution, checkpoint_id: str | None) -> tuple[str, ...]:
        """Return the needed modules that a start from this checkpoint does not bring (``None``: a cold start)."""
        needed = self._needed(resolution)
        held = self._held.get(checkpoint_id, frozenset()) if checkpoint_id else frozenset()
        return tuple(name for name, group in self._group.items() if group & needed and name not in held)

    def _needed(self, resolution: Resolution) -> int:
        needed = 0
        for name in resolution.modules:
            needed |= self._needs[name]
        return needed

    def _scores(self, hints: ImportHints) -> Scores:
        return self.score(self.resolve(hints))


def _closures(depends_on: Sequence[Collection[int]]) -> list[int]:
    """Return for each node the bit set of itself and all it depends on, directly or not. Circles are allowed."""
    closures = [1 << index for index in range(len(depends_on))]
    changed = True
    while changed:
        changed = False
        for index, needs in enumerate(depends_on):
            closure = closures[index]
            for need in needs:
                closure |= closures[need]
            if closure != closures[index]:
                closures[index] = closure
                changed = True
    return closures


def _subset_sums(costs: Sequence[int]) -> list[int]:
    """Return the sum of each subset of up to eight costs, by the subset's bits."""
    sums = [0]
    for cost in costs:
        sums += [before + cost for before in sums]
    return sums
