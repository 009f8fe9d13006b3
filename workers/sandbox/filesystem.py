"""A flavor's built filesystem: what a sandbox sees besides the host's system directories."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import readie
import workers
import workers.executor

DESCRIPTION = "filesystem.json"
PACKAGES = "packages"
EXECUTOR = "executor"
_READIE_MODULES = (
    "__init__.py",
    "errors.py",
    "hooks.py",
    "inside.py",
    "protocol/__init__.py",
    "protocol/context.py",
    "protocol/exceptions.py",
    "protocol/payload.py",
    "protocol/versions.py",
)


@dataclass(frozen=True)
class Filesystem:
    """The Python, the packages and the executor of one flavor, as paths on this host.

    ``python`` is the interpreter's real path, below ``prefix``, and is the same inside the sandbox. ``digest`` names
    all content, because gVisor does not notice a file that changed since the snapshot. ``python_version`` is the
    minor version, such as ``3.11``.
    """

    python: Path
    prefix: Path
    packages: Path
    executor: Path
    digest: str
    python_version: str


def read_filesystem(folder: Path) -> Filesystem:
    """Return the filesystem built in ``folder``.

    Raises ``FileNotFoundError`` when there is none, ``ValueError`` when its description is damaged.
    """
    path = folder / DESCRIPTION
    try:
        description: dict[str, Any] = json.loads(path.read_text())
        python, prefix, digest, version = (
            str(description[key]) for key in ("python", "prefix", "digest", "python_version")
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a filesystem's description: {error!r}") from error
    return Filesystem(Path(python), Path(prefix), folder / PACKAGES, folder / EXECUTOR, digest, version)


def write_filesystem(folder: Path, *, python: Path, prefix: Path, digest: str, python_version: str) -> Filesystem:
    """Describe the finished filesystem in ``folder``, which has its packages and executor already."""
    description = {
        "python": str(python),
        "prefix": str(prefix),
        "digest": digest,
        "python_version": python_version,
    }
    temporary = folder / f".{DESCRIPTION}"
    temporary.write_text(json.dumps(description, indent=2) + "\n")
    temporary.rename(folder / DESCRIPTION)
    return read_filesystem(folder)


def copy_executor(destination: Path) -> None:
    """Copy the executor's program to ``destination``: of ``workers`` the executor, of ``readie`` what it needs.

    The rest of ``readie`` stays out: it needs more than the standard library, and images would go stale whenever the
    client changes.
    """
    shutil.copytree(
        _package_dir(workers.executor),
        destination / "workers" / "executor",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    shutil.copy2(_package_dir(workers) / "__init__.py", destination / "workers" / "__init__.py")
    for name in _READIE_MODULES:
        copy = destination / "readie" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(_package_dir(readie) / name, copy)


def _package_dir(package: Any) -> Path:
    return Path(package.__file__).parent
