"""Import measurements kept from one build to the next, for as long as they hold."""

import hashlib
import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from readie.protocol.call import Message

_FORMAT: Final = 1


@dataclass(frozen=True)
class ImportRun:
    """One module imported in a fresh process."""

    own_seconds: dict[str, float]
    """Of every module this loaded, without the imports inside it."""
    megabytes: float
    """Anonymous memory that the process gained."""
    loaded: frozenset[str]


class _Entry(Message):
    versions: dict[str, str]
    """Distributions that the import used."""
    own_seconds: dict[str, float]
    megabytes: float
    loaded: tuple[str, ...]


class _File(Message):
    environment: str
    entries: dict[str, _Entry]


class KnownRuns:
    """The measurements of one flavor, in the file ``path``.

    One is used again while every distribution it involved has the same version, and Python, runsc and CPU are the same.
    """

    def __init__(self, path: Path, packages: Path, runsc_version: str) -> None:
        self._path = path
        self._versions, self._owners = _installed(packages)
        self._environment = _environment(runsc_version)
        self._entries = _read(path, self._environment)

    def get(self, name: str) -> ImportRun | None:
        """Return what is known of ``name``, or ``None``."""
        entry = self._entries.get(name)
        if entry is None or any(self._versions.get(owner) != version for owner, version in entry.versions.items()):
            return None
        return ImportRun(entry.own_seconds, entry.megabytes, frozenset(entry.loaded))

    def put(self, name: str, run: ImportRun) -> None:
        """Keep ``run``; ``save`` writes it."""
        owners = {owner for loaded in run.loaded for owner in self._owners.get(loaded.partition(".")[0], ())}
        self._entries[name] = _Entry(
            versions={owner: self._versions[owner] for owner in sorted(owners)},
            own_seconds=run.own_seconds,
            megabytes=run.megabytes,
            loaded=tuple(sorted(run.loaded)),
        )

    def save(self) -> None:
        """Write what is known, less what no longer holds."""
        entries = {name: entry for name, entry in self._entries.items() if self.get(name) is not None}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_name(f".{self._path.name}")
        draft.write_text(_File(environment=self._environment, entries=entries).model_dump_json())
        draft.rename(self._path)


def _installed(packages: Path) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Return the version of each distribution, and for each top-level module the distributions it comes from."""
    versions: dict[str, str] = {}
    owners: dict[str, set[str]] = defaultdict(set)
    for distribution in distributions(path=[str(packages)]):
        name = distribution.metadata["Name"]
        versions[name] = distribution.version
        for file in distribution.files or ():
            owners[file.parts[0].partition(".")[0]].add(name)
    return versions, owners


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
