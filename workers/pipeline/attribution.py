"""Sharing out what was measured among the modules of a catalogue, so that every second is counted once.

Imports overlap: two modules of one package share most of what they load. What is always loaded together, by the same
modules, is one *part*. Each part is one entry of the catalogue, under the name that users import if there is one and
else under one of its own, and a module depends on all other parts that its import loads. So the sum over a module and
its dependencies, and over any union of these, is what was measured, and nothing in it is counted twice.
"""

from collections import defaultdict
from collections.abc import Mapping
from statistics import fmean, median
from typing import Final

from readie.protocol.catalogue import Module
from workers.pipeline.runs import ImportRun, Whole

_MEMORY_ROUNDS: Final = 40


def attribute(runs: Mapping[str, ImportRun], loads: Mapping[str, Whole]) -> dict[str, Module]:
    """Return the catalogue's entries for ``runs``, of which ``loads`` says what each loads in all."""
    seconds = _own_seconds(runs)
    megabytes = _own_megabytes(runs, seconds)
    loaders: dict[str, set[str]] = defaultdict(set)
    for name, all_of_it in loads.items():
        for loaded in all_of_it.loaded:
            loaders[loaded].add(name)
    parts: dict[frozenset[str], list[str]] = defaultdict(list)
    for loaded, by in loaders.items():
        parts[frozenset(by)].append(loaded)
    entry = {by: _entry_name(members, by) for by, members in parts.items()}
    # Whoever loads a part loads all that each of its loaders loads.
    closures = {by: {other for other in parts if other > by} for by in parts}
    needs = {entry[by]: closures[by] for by in parts}
    # Modules that load each other are one part, under one name; the other names lead there.
    own_part = {name: frozenset(loaders[name]) for name in loads}
    needs |= {name: {by, *closures[by]} for name, by in own_part.items() if entry[by] != name}
    cost = {entry[by]: members for by, members in parts.items()}
    return {
        name: Module(
            import_seconds=sum(seconds.get(member, 0.0) for member in cost.get(name, ())),
            megabytes=sum(megabytes.get(member, 0.0) for member in cost.get(name, ())),
            dependencies=tuple(sorted(entry[by] for by in _nearest(needs[name], closures))),
        )
        for name in sorted(needs)
    }


def _entry_name(members: list[str], loaders: frozenset[str]) -> str:
    """Return the name of a part: that of a module users import, else the shortest."""
    return min(members, key=lambda name: (name not in loaders, name.count("."), len(name), name))


def _nearest(
    needs: set[frozenset[str]], closures: Mapping[frozenset[str], set[frozenset[str]]]
) -> list[frozenset[str]]:
    """Return those of ``needs`` that no other of them brings with it."""
    nearest: list[frozenset[str]] = []
    brought: set[frozenset[str]] = set()
    for by in sorted(needs, key=len):
        if by not in brought:
            nearest.append(by)
            brought |= closures[by]
    return nearest


def _own_seconds(runs: Mapping[str, ImportRun]) -> dict[str, float]:
    """Return the median of all measurements of each loaded module."""
    measured: dict[str, list[float]] = defaultdict(list)
    for run in runs.values():
        for name, seconds in run.own_seconds.items():
            measured[name].append(seconds)
    return {name: median(values) for name, values in measured.items()}


def _own_megabytes(runs: Mapping[str, ImportRun], seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the memory of each loaded module, such that the sums over each run's come near what it was seen to gain.

    Memory is seen for a whole process. It begins in proportion to time; then each module is corrected, again and again,
    by how much the sums that it is part of are off (maximum-likelihood expectation maximisation).
    """
    seen = [run for run in runs.values() if run.loaded]
    megabytes = {name: max(seconds.get(name, 0.0), 1e-6) for run in seen for name in run.loaded}
    for _ in range(_MEMORY_ROUNDS):
        corrections: dict[str, list[float]] = defaultdict(list)
        for run in seen:
            off = run.megabytes / max(sum(megabytes[name] for name in run.loaded), 1e-9)
            for name in run.loaded:
                corrections[name].append(off)
        megabytes = {name: value * fmean(corrections[name]) for name, value in megabytes.items()}
    return megabytes
