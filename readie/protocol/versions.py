"""Versions of the packages that pickles refer to. Standard library only: the executor imports this module.

A pickle names classes and functions of packages, and holds what these made of themselves; another version of the
package may know neither. So each side says what it has, and whoever fails to unpickle can name both.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

_NAMED_KINDS = (type, FunctionType, BuiltinFunctionType)


def module_behind(value: object) -> str | None:
    """Return the module of a class, function or module that is pickled as no more than its name."""
    name: Any = None
    if isinstance(value, ModuleType):
        name = value.__name__
    elif isinstance(value, _NAMED_KINDS):
        name = value.__module__
    return name if isinstance(name, str) else None


def versions_of(modules: Iterable[str]) -> dict[str, str]:
    """Return the version of each loaded package that a module of these is in, as far as it says one."""
    found = {}
    for package in sorted({name.partition(".")[0] for name in modules} - sys.stdlib_module_names):
        version = getattr(sys.modules.get(package), "__version__", None)
        if isinstance(version, str):
            found[package] = version
    return found


def differences(theirs: Mapping[str, str], *, they: str, we: str) -> str:
    """Return what packages differ between ``theirs`` and this process, for people; empty when none is known to.

    Args:
        theirs: versions by package.
        they: what the other side is called, ``"the client"``.
        we: what this side is called.
    """
    different = []
    for package, version in sorted(theirs.items()):
        here = _installed(package)
        if here != version:
            different.append(f"{package} is {version} {they} and {here or 'missing'} {we}")
    return "; ".join(different)


def _installed(package: str) -> str | None:
    version = getattr(sys.modules.get(package), "__version__", None)
    if isinstance(version, str):
        return version
    try:
        return metadata.version(package)
    except (metadata.PackageNotFoundError, ValueError):
        return None
