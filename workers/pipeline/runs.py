"""Import measurements kept from one build to the next, for as long as they hold."""

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import Field, ValidationError

from readie.protocol.call import Message
from workers.pipeline.installed import Installed

_FORMAT: Final = 2


class ImportRun(Message):
    """One module imported in a process of its own, which had imported ``after`` before and nothing else."""

    after: str | None = None
    """A module above this one in name; ``None``: a bare executor."""
    own_seconds: dict[str, float] = Field(default_factory=dict)
    """Of every module this loaded, without the imports inside it."""
    megabytes: float = 0.0
    """Anonymous memory that the process gained (10^6 bytes)."""
    loaded: tuple[str, ...] = ()
    """What ``sys.modules`` gained."""
    error: str | None = None
    """Why it can't be imported."""
    unfit: str | None = None
    """Why no image may hold it: what it leaves running or open."""


@dataclass(frozen=True)
class Whole:
    """All that importing one module from nothing loads, and why it may not be in an image."""

    loaded: frozenset[str]
    unfit: str | None


class _Entry(Message):
    versions: dict[str, str]
    """Distributions that the import used."""
    run: ImportRun


class _File(Message):
    environment: str
    entries: dict[str, _Entry]


class KnownRuns:
    """The measurements of one flavor, in the file ``path``.

    One is used again while every distribution it involved has the same version, and Python, runsc and CPU are the same.
    """

    def __init__(self, path: Path, installed: Installed, runsc_version: str) -> None:
        self._path = path
        self._installed = installed
        self._environment = _environment(runsc_version)
        self._entries = _read(path, self._environment)

    def get(self, name: str) -> ImportRun | None:
        """Return what is known of ``name``, or ``None``."""
        entry = self._entries.get(name)
        if entry is None or not self._holds(entry):
            return None
        return entry.run

    def put(self, name: str, run: ImportRun) -> None:
        """Keep ``run``; ``save`` writes it."""
        used = {loaded.partition(".")[0] for loaded in (name, *run.loaded)}
        owners = {owner for top in used for owner in self._installed.owners.get(top, ())}
        versions = {owner: self._installed.versions[owner] for owner in sorted(owners)}
        self._entries[name] = _Entry(versions=versions, run=run)

    def save(self) -> None:
        """Write what is known, less what no longer holds."""
        entries = {name: entry for name, entry in self._entries.items() if self._holds(entry)}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_name(f".{self._path.name}")
        draft.write_text(_File(environment=self._environment, entries=entries).model_dump_json(exclude_defaults=True))
        draft.rename(self._path)

    def _holds(self, entry: _Entry) -> bool:
        if any(self._installed.versions.get(owner) != version for owner, version in entry.versions.items()):
            return False
        return entry.run.after is None or self.get(entry.run.after) is not None


def whole(runs: Mapping[str, ImportRun]) -> dict[str, Whole]:
    """Return for each of ``runs`` that could be imported what it loads in all; those they came after are among them."""
    done: dict[str, Whole] = {}
    for name in sorted(runs):  # those above in name come first
        run = runs[name]
        if run.error is not None:
            continue
        above = done[run.after] if run.after is not None else Whole(frozenset(), None)
        done[name] = Whole(above.loaded | frozenset(run.loaded), run.unfit or above.unfit)
    return done


def _environment(runsc_version: str) -> str:
    cpu = next(
        (line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "unknown"
    )
    return hashlib.sha256(json.dumps([_FORMAT, sys.version, runsc_version, cpu]).encode()).hexdigest()


def _read(path: Path, environment: str) -> dict[str, _Entry]:
    try:
        file = _File.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        # Nothing is lost but the time to measure again.
        return {}
    return dict(file.entries) if file.environment == environment else {}
