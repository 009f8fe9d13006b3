"""Reading a flavor's folder: what it is called, what is installed, and what its checkpoints import."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, StringConstraints, ValidationError

from readie.protocol.call import Message

DESCRIPTION: Final = "flavor.toml"
REQUIREMENTS: Final = "requirements.txt"
MAX_CHECKPOINTS: Final = 15
"""Besides the empty one."""

ModuleName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")]


class FlavorError(Exception):
    """A flavor can't be built as it is described; the text says what to change."""


class PlannedCheckpoint(Message):
    """A set of modules that one checkpoint imports, in this order."""

    imports: tuple[ModuleName, ...] = Field(min_length=1)


class Description(Message):
    """``flavor.toml``."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    python: str | None = Field(default=None, pattern=r"^\d+\.\d+$")
    """``major.minor`` it must be built with; without it, that of the Python which runs the pipeline."""
    checkpoint: tuple[PlannedCheckpoint, ...] = Field(max_length=MAX_CHECKPOINTS)


@dataclass(frozen=True)
class Flavor:
    """A flavor's source."""

    folder: Path
    name: str
    plan: tuple[tuple[str, ...], ...]
    """What each checkpoint imports; the empty ``checkpoint_0`` is not listed."""

    @property
    def requirements(self) -> Path:
        """What is to be installed."""
        return self.folder / REQUIREMENTS


def read_flavor(folder: Path, python: str) -> Flavor:
    """Read the flavor in ``folder``, to be built with a Python of version ``python`` (``major.minor``).

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
        folder.absolute(), description.name, tuple(checkpoint.imports for checkpoint in description.checkpoint)
    )
    try:
        requirements = flavor.requirements.read_text(encoding="utf-8")
    except OSError as error:
        raise FlavorError(f"{flavor.requirements} can't be read: {error.strerror}") from error
    if not re.search(r"^\s*cloudpickle\b", requirements, re.MULTILINE | re.IGNORECASE):
        raise FlavorError(f"{flavor.requirements} must list cloudpickle: calls and results are pickled with it")
    return flavor
