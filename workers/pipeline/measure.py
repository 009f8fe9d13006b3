"""Importing modules in sandboxes, each in a process of its own, and keeping what that showed."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from workers.pipeline import probe
from workers.pipeline.capture import CaptureError, run, start_cold
from workers.pipeline.runs import ImportRun, KnownRuns, whole
from workers.sandbox.connection import ExecutorConnection
from workers.sandbox.host import SandboxHost
from workers.sandbox.sandbox import Sandbox

logger = logging.getLogger(__name__)

IMPORT_SECONDS: Final = 60
"""Longest import of one module."""


class Measurer:
    """Measures in one sandbox as long as that lives; a context manager, which ends it."""

    def __init__(self, host: SandboxHost, known: KnownRuns) -> None:
        self._host = host
        self._known = known
        self._sandbox: tuple[Sandbox, ExecutorConnection] | None = None

    def __enter__(self) -> "Measurer":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def measure(self, names: Iterable[str], done: Callable[[str], None]) -> dict[str, ImportRun]:
        """Return what importing each of ``names`` took, or that it failed; ``done`` is told each top-level name.

        A module that comes with the one above it is left out, for a hint resolves to that one, and so is one below a
        module that fails. What an earlier build has measured is not measured again.
        """
        runs: dict[str, ImportRun] = {}
        for top, group in by_top_level(names).items():
            known = {name: run_ for name in group if (run_ := self._known.get(name)) is not None}
            if unknown := _unknown(group, known):
                # Their processes come from those of the modules above them.
                above = {other for other in group for name in unknown if name.startswith(f"{other}.")}
                for name, run_ in self._measure(top, sorted(above | unknown)).items():
                    if name not in known:
                        known[name] = run_
                        self._known.put(name, run_)
            runs |= known
            done(top)
        return runs

    def _measure(self, top: str, names: Sequence[str]) -> dict[str, ImportRun]:
        if self._sandbox is None:
            self._sandbox = start_cold(self._host)
        _, connection = self._sandbox
        try:
            results = run(
                connection,
                probe.measure_modules,
                list(names),
                IMPORT_SECONDS,
                timeout=IMPORT_SECONDS * (1 + len(names)),
            )
        except CaptureError as error:
            logger.warning("%s: %s", top, error)
            self._end()
            return {top: ImportRun(error=str(error))}
        return {name: _run(result) for name, result in results.items()}

    def _end(self) -> None:
        if self._sandbox is not None:
            self._host.discard(self._sandbox[0])
            self._sandbox = None


def by_top_level(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the sorted names of each top-level module, itself among them."""
    groups: dict[str, set[str]] = defaultdict(set)
    for name in names:
        top = name.partition(".")[0]
        groups[top] |= {top, name}
    return {top: sorted(groups[top]) for top in sorted(groups)}


def _unknown(group: Iterable[str], known: Mapping[str, ImportRun]) -> AbstractSet[str]:
    """Return those of ``group`` that must be measured: neither known nor settled by a known one above them."""
    loads = whole(known)
    failed = [name for name, run_ in known.items() if run_.error is not None]
    return {
        name
        for name in group
        if name not in known
        and not any(name.startswith(f"{other}.") and name in loads[other].loaded for other in loads)
        and not any(name.startswith(f"{other}.") for other in failed)
    }


def _run(result: Mapping[str, Any]) -> ImportRun:
    if result["error"] is not None:
        return ImportRun(after=result["after"], error=result["error"])
    left = [f"the thread {name!r} running" for name in result["threads"]]
    if result["sockets"] > 0:
        left.append(f"{result['sockets']} sockets open")
    return ImportRun(
        after=result["after"],
        own_seconds=result["seconds"],
        megabytes=result["megabytes"],
        loaded=tuple(result["loaded"]),
        unfit=f"its import leaves {', '.join(left)}" if left else None,
    )
