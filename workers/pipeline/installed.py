"""What a folder of packages has: its distributions, their versions and their importable modules."""

from collections import defaultdict
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import distributions
from pathlib import Path, PurePath
from typing import Final

_SUFFIXES: Final = (".py", *EXTENSION_SUFFIXES)
_NOT_FOR_USERS: Final = frozenset({"tests", "test", "conftest", "setup"})
"""Parts of a module's name that only its own developers import."""


class Installed:
    """The distributions in the folder ``packages``, as their own records list them."""

    def __init__(self, packages: Path) -> None:
        versions: dict[str, str] = {}
        owners: dict[str, set[str]] = defaultdict(set)
        modules: set[str] = set()
        for distribution in distributions(path=[str(packages)]):
            name = distribution.metadata["Name"]
            versions[name] = distribution.version
            for file in distribution.files or ():
                owners[file.parts[0].partition(".")[0]].add(name)
                if (module := _module(file)) is not None:
                    modules.add(module)
        self.versions = versions
        self.owners = {top: frozenset(names) for top, names in owners.items()}
        """Top-level module to the distributions that it comes from."""
        self.modules = frozenset(modules)
        """Names of all modules."""

    def public_modules(self) -> set[str]:
        """Return the modules that are there for users: no part of their name is private or of a test."""
        return {
            name
            for name in self.modules
            if not any(part.startswith("_") or part in _NOT_FOR_USERS for part in name.split("."))
        }


def _module(file: PurePath) -> str | None:
    suffix = next((suffix for suffix in _SUFFIXES if file.name.endswith(suffix)), None)
    if suffix is None:
        return None
    *parents, last = file.parts
    parts = [*parents, last.removesuffix(suffix)]
    if parents and parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts) if all(part.isidentifier() for part in parts) else None
