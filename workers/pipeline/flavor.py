"""Reading a flavor's folder: what it is called, what is installed, and what its checkpoints import."""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, StringConstraints, ValidationError

from readie.protocol.call import Asked

DESCRIPTION: Final = "flavor.toml"
MAX_CHECKPOINTS: Final = 15
"""Besides the empty one."""

ModuleName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")]


class FlavorError(Exception):
    """A flavor can't be built as it is described; the text says what to change."""


class PlannedCheckpoint(Asked):
    """A set of modules that one checkpoint imports, in this order."""

    imports: tuple[ModuleName, ...] = Field(min_length=1)


class Description(Asked):
    """``flavor.toml``."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    python: str | None = Field(default=None, pattern=r"^\d+\.\d+$")
    """``major.minor`` it must be built with; without it, that of the Python which runs the pipeline."""
    gpu: bool = False
    """Whether its sandboxes are given the host's GPUs."""
    checkpoint: tuple[PlannedCheckpoint, ...] = Field(default=(), max_length=MAX_CHECKPOINTS)
    """What the checkpoints import; without any, that is planned for a corpus."""


@dataclass(frozen=True)
class Flavor:
    """A flavor's source."""

    folder: Path
    name: str
    plan: tuple[tuple[str, ...], ...]
    """What each checkpoint imports, without the empty ``checkpoint_0``; none: to be planned for a corpus."""
    gpu: bool = False
    extras: tuple[str, ...] = ()
    """Optional parts that are installed too, sorted."""

    @property
    def requirements(self) -> tuple[Path, ...]:
        """What is to be installed: ``requirements.txt``, and ``requirements-<extra>.txt`` of each extra."""
        return self._files("requirements", ".txt")

    @property
    def lock(self) -> Path:
        """Exact versions of ``requirements``."""
        return self.folder / f"{'-'.join(['requirements', *self.extras])}.lock"

    @property
    def corpora(self) -> tuple[Path, ...]:
        """Import sets to plan for: ``corpus.jsonl``, and ``corpus-<extra>.jsonl`` of the extras that have one."""
        shipped, *of_extras = self._files("corpus", ".jsonl")
        return (shipped, *(path for path in of_extras if path.exists()))

    def _files(self, stem: str, suffix: str) -> tuple[Path, ...]:
        names = [stem, *(f"{stem}-{extra}" for extra in self.extras)]
        return tuple(self.folder / f"{name}{suffix}" for name in names)


def read_flavor(folder: Path, python: str, extras: Iterable[str] = ()) -> Flavor:
    """Read the flavor in ``folder`` with these ``extras``, to be built with Python ``python`` (``major.minor``).

    Raises ``FlavorError`` when a file is missing or wrong, or the flavor is for another Python.
    """
    path = folder / DESCRIPTION
    try:
        description = Description.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise FlavorError(f"there is no flavor in {folder}: {path} can't be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise FlavorError(f"{path}: {'.'.join(str(part) for part in first['loc'])}: {first['msg']}") from error
    except ValueError as error:
        raise FlavorError(f"{path}: {error}") from error
    if description.name != folder.name:
        raise FlavorError(f"{path}: its name is {description.name!r}, but its folder is called {folder.name!r}")
    if description.python not in (None, python):
        raise FlavorError(f"{path} is for Python {description.python}; run this with that one instead of {python}")
    flavor = Flavor(
        folder.absolute(),
        description.name,
        tuple(checkpoint.imports for checkpoint in description.checkpoint),
        description.gpu,
        tuple(sorted(set(extras))),
    )
    _check_requirements(flavor)
    return flavor


def _check_requirements(flavor: Flavor) -> None:
    requirements = ""
    for path in flavor.requirements:
        try:
            requirements += path.read_text(encoding="utf-8") + "\n"
        except OSError as error:
            raise FlavorError(f"{path} can't be read: {error.strerror}") from error
    if not re.search(r"^\s*cloudpickle\b", requirements, re.MULTILINE | re.IGNORECASE):
        raise FlavorError(f"{flavor.requirements[0]} must list cloudpickle: calls and results are pickled with it")
