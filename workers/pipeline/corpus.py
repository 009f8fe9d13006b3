"""The corpus: which modules calls need together, and how often. It is what a generation is planned for."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, ValidationError

from readie.protocol.call import Asked
from workers.pipeline.flavor import FlavorError


class ImportSet(Asked):
    """One line of a corpus file: the names that a function's scan finds."""

    imports: tuple[str, ...]
    """Full dotted names, as in ``ImportHints``; none for a function that needs the standard library alone."""
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """How often, in any unit: only the shares count."""
    note: str = ""
    """For people: what such a function does."""


@dataclass(frozen=True)
class Corpus:
    """Sets of imports, no two alike."""

    source: str
    """Where they come from, for people."""
    sets: tuple[ImportSet, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of what a plan depends on, hexadecimal."""
        lines = sorted(f"{','.join(found.imports)} {found.weight!r}" for found in self.sets)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def corpus(source: str, sets: Iterable[ImportSet]) -> Corpus:
    """Return the corpus of ``sets``, those of the same imports added up. ``FlavorError`` when there are none."""
    weights: dict[tuple[str, ...], float] = defaultdict(float)
    for found in sets:
        weights[tuple(sorted(set(found.imports)))] += found.weight
    if not weights:
        raise FlavorError(f"{source} has no import sets, so there is nothing to plan for")
    return Corpus(source, tuple(ImportSet(imports=imports, weight=weights[imports]) for imports in sorted(weights)))


def read_corpus(*paths: Path) -> Corpus:
    """Read JSON-lines files of ``ImportSet``; empty lines are skipped.

    Raises ``FlavorError``, which names the file and the line, when one can't be read.
    """
    sets: list[ImportSet] = []
    for path in paths:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise FlavorError(f"the corpus {path} can't be read: {error}") from error
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                sets.append(ImportSet.model_validate_json(line))
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                where = ".".join(str(part) for part in first["loc"])
                raise FlavorError(f"{path}:{number}: {where + ': ' if where else ''}{first['msg']}") from error
    return corpus(" and ".join(str(path) for path in paths), sets)
