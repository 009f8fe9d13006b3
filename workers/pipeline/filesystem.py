"""Building a flavor's filesystem: its packages and the executor, in a folder that is named by its content."""

import compileall
import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from readie.generations.disk import file_digest
from readie.generations.publish import building_in, publish, staging, switch
from readie.protocol.call import Message
from workers.pipeline import uv
from workers.pipeline.digest import filesystem_digest, tree_digest
from workers.pipeline.flavor import Flavor
from workers.sandbox.filesystem import (
    EXECUTOR,
    PACKAGES,
    Filesystem,
    copy_executor,
    read_filesystem,
    write_filesystem,
)

CURRENT: Final = "current"
_INPUTS: Final = "inputs.json"


@dataclass(frozen=True)
class HostPython:
    """The Python that this process runs, outside of any virtual environment."""

    executable: Path
    prefix: Path
    version: str
    """``major.minor``."""


@dataclass(frozen=True)
class Built:
    """A flavor's filesystem on disk."""

    folder: Path
    filesystem: Filesystem
    reused: bool
    """Whether it was there already."""


def host_python() -> HostPython:
    """Return the Python that sandboxes are given: the one this process runs."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return HostPython(Path(sys.executable).resolve(), Path(sys.base_prefix).resolve(), version)


def measured_digest(filesystem: Filesystem) -> str:
    """Return the digest of what ``filesystem`` is on disk now, which differs from its name when files have changed."""
    return filesystem_digest(
        python=filesystem.python,
        prefix=filesystem.prefix,
        python_version=filesystem.python_version,
        packages=filesystem.packages,
        executor=filesystem.executor,
    )


def flavor_folder(data: Path, name: str) -> Path:
    """Return where the filesystems of the flavor ``name`` lie; its ``current`` leads to the one that was built last."""
    return data / "flavors" / name


def build_filesystem(flavor: Flavor, data: Path, say: Callable[[str], None]) -> Built:
    """Return the filesystem of ``flavor``, built below ``data`` unless an unchanged one is there.

    Raises ``FlavorError`` when its requirements can't be installed, ``BusyError`` when another process builds it.
    """
    python = host_python()
    home = flavor_folder(data, flavor.name)
    lock = uv.locked(flavor)
    with building_in(home), staging(home) as staged:
        copy_executor(staged / EXECUTOR)
        inputs = _Inputs(packages=_packages_inputs(lock, python), executor=tree_digest(staged / EXECUTOR))
        earlier = _earlier(home, inputs)
        if earlier is not None and _read_inputs(earlier.folder) == inputs:
            built = earlier
        else:
            if earlier is not None:
                shutil.copytree(earlier.filesystem.packages, staged / PACKAGES, symlinks=True, copy_function=os.link)
            else:
                say(f"installing {lock}")
                uv.install(lock, staged / PACKAGES)
            _finish(staged, python, inputs)
            built = _place(staged, home)
        if not (home / CURRENT).is_dir() or (home / CURRENT).resolve() != built.folder:
            switch(home / CURRENT, built.folder.name)
    return built


class _Inputs(Message):
    """What a filesystem was built from, to know it again without building it."""

    packages: str
    executor: str


def _packages_inputs(lock: Path, python: HostPython) -> str:
    return hashlib.sha256("\n".join((file_digest(lock), str(python.executable), sys.version)).encode()).hexdigest()


def _read_inputs(folder: Path) -> _Inputs | None:
    try:
        return _Inputs.model_validate_json((folder / _INPUTS).read_bytes())
    except (OSError, ValidationError):
        return None


def _earlier(home: Path, inputs: _Inputs) -> Built | None:
    """Return a filesystem with the packages of ``inputs``, if there is one with its executor too.

    Only one that is still, to the last byte, what it was built as.
    """
    folders = [
        folder.resolve() for folder in home.iterdir() if (folder / _INPUTS).is_file() and not folder.is_symlink()
    ]
    found = [(folder, made_from) for folder in folders if (made_from := _read_inputs(folder)) is not None]
    for folder, made_from in sorted(found, key=lambda pair: pair[1] != inputs):
        if made_from.packages != inputs.packages:
            continue
        filesystem = read_filesystem(folder)
        if filesystem.digest == folder.name == measured_digest(filesystem):
            return Built(folder, filesystem, reused=True)
    return None


def _finish(staged: Path, python: HostPython, inputs: _Inputs) -> None:
    """Complete the folder ``staged``, in which the packages and the executor are."""
    packages, executor = staged / PACKAGES, staged / EXECUTOR
    compileall.compile_dir(executor, quiet=2)
    digest = filesystem_digest(
        python=python.executable,
        prefix=python.prefix,
        python_version=python.version,
        packages=packages,
        executor=executor,
    )
    (staged / _INPUTS).write_text(inputs.model_dump_json())
    write_filesystem(
        staged, python=python.executable, prefix=python.prefix, digest=digest, python_version=python.version
    )
    _make_readable(staged)


def _place(staged: Path, home: Path) -> Built:
    folder = home.resolve() / read_filesystem(staged).digest
    with staging(home) as damaged:
        # The name says what it was built as; somebody has changed files in it since.
        if folder.exists():
            folder.rename(damaged / "damaged")
        publish(staged, folder)
    return Built(folder, read_filesystem(folder), reused=False)


def _make_readable(top: Path) -> None:
    """Let everybody read: the executor is an unprivileged user, and umasks differ."""
    for folder, _, names in os.walk(top):
        Path(folder).chmod(0o755)
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o111 else 0o644)
