"""What the modules of a catalogue cost to import, alone, their dependencies being present."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Final

from readie.protocol.catalogue import Module
from workers.pipeline import probe
from workers.pipeline.capture import CaptureError, run, start_cold
from workers.pipeline.runs import ImportRun, KnownRuns
from workers.sandbox.host import SandboxHost

logger = logging.getLogger(__name__)

IMPORT_SECONDS: Final = 120.0
"""Longest import of one module."""


class Measurer:
    """Imports modules in sandboxes and keeps what it learns, so that the next build need not."""

    def __init__(self, host: SandboxHost, known: KnownRuns) -> None:
        self._host = host
        self._known = known

    def import_all(self, names: AbstractSet[str], done: Callable[[str], None]) -> dict[str, ImportRun]:
        """Return what importing each of ``names`` took; ``done`` is told each top-level name.

        A submodule that its top-level package brings in is left out: both are always there together, and a hint for
        it resolves to the package. So is one whose import fails, hangs or ends its process, which is logged: calls
        that need it are priced without it.
        """
        runs: dict[str, ImportRun] = {}
        submodules: dict[str, list[str]] = {top: [] for top in top_level(names)}
        for name in sorted(names - submodules.keys()):
            submodules[name.partition(".")[0]].append(name)
        for top, below in submodules.items():
            runs |= self._import_package(top, below)
            done(top)
        return runs

    def _import_package(self, top: str, submodules: Sequence[str]) -> dict[str, ImportRun]:
        known = {name: found for name in (top, *submodules) if (found := self._known.get(name)) is not None}
        brought = known[top].loaded if top in known else frozenset()
        unknown = [name for name in submodules if name not in known and name not in brought]
        if top in known and not unknown:
            return known
        sandbox, connection = start_cold(self._host)
        try:
            results = run(
                connection,
                probe.measure_package,
                top,
                unknown,
                IMPORT_SECONDS,
                timeout=IMPORT_SECONDS * (1 + len(unknown)),
            )
        except CaptureError as error:
            results = {top: {"error": str(error)}}
        finally:
            self._host.discard(sandbox)
        measured: dict[str, ImportRun] = {}
        for name, result in results.items():
            if result["error"] is not None:
                logger.warning("%s is not in the catalogue: its import fails: %s", name, result["error"])
            else:
                measured[name] = _combined(measured.get(top), result)
                self._known.put(name, measured[name])
        return known | measured


def shared_packages(runs: Mapping[str, ImportRun], packages: Path) -> set[str]:
    """Return what a catalogue should know besides the modules of ``runs``, for its cost to count once.

    These are the installed top-level modules that any of ``runs`` brought in, and the public subpackages, one level
    down, that several did.
    """
    counts = Counter(name for run_ in runs.values() for name in run_.loaded)
    return {
        name
        for name, count in counts.items()
        if not any(part.startswith("_") for part in name.split("."))
        and (
            (name.count(".") == 0 and ((packages / name).is_dir() or (packages / f"{name}.py").is_file()))
            or (name.count(".") == 1 and count > 1 and (packages / name.replace(".", "/")).is_dir())
        )
    }


def attribute(runs: Mapping[str, ImportRun]) -> dict[str, Module]:
    """Give every loaded module's cost to one catalogued module, so that a closure's sum counts it once.

    A module's seconds and memory are those of all it loads and none of its dependencies load. Of modules that bring
    in each other, the one with the shortest name carries what they share.
    """
    modules: dict[str, Module] = {}
    for name in _dependencies_first(runs):
        run_ = runs[name]
        dependencies = sorted(other for other in runs if other in run_.loaded and other != name)
        carriers = [other for other in dependencies if other in modules]
        covered = frozenset[str]().union(*(runs[other].loaded for other in carriers))
        modules[name] = Module(
            import_seconds=sum(seconds for loaded, seconds in run_.own_seconds.items() if loaded not in covered),
            megabytes=max(0.0, run_.megabytes - sum(modules[other].megabytes for other in carriers)),
            dependencies=tuple(dependencies),
        )
    return modules


def top_level(names: AbstractSet[str]) -> list[str]:
    """Return the top-level packages of ``names``, sorted."""
    return sorted({name.partition(".")[0] for name in names})


def _combined(package: ImportRun | None, result: Mapping[str, Any]) -> ImportRun:
    """Return the whole import of a submodule, of which ``result`` is what it added to its ``package``."""
    base = package or ImportRun({}, 0.0, frozenset())
    return ImportRun(
        own_seconds=base.own_seconds | result["seconds"],
        megabytes=base.megabytes + result["megabytes"],
        loaded=base.loaded | frozenset(result["loaded"]),
    )


def _dependencies_first(runs: Mapping[str, ImportRun]) -> Sequence[str]:
    # What a module brings in is a part of what whoever imports it brings in, so it is never the larger of the two.
    return sorted(runs, key=lambda name: (len(runs[name].loaded), name.count("."), name))
