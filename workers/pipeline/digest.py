"""One digest for all that a sandbox's processes read from disk and keep in a snapshot.

gVisor compares no file contents at a restore: a library that was changed since is mixed into the restored process in
silence. So an image is bound to this digest, which is taken over the contents themselves.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from readie.generations.disk import file_digest
from workers.pipeline.libraries import host_libraries

LIBRARY_FOLDERS: Final = tuple(
    Path(folder)
    for folder in ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
)

_DERIVED_FOLDERS: Final = frozenset({"__pycache__"})
"""Byte code follows from its source, and holds times of this machine."""
_UNUSED_OF_STDLIB: Final = frozenset({"site-packages", "dist-packages", "test", "tests", "idlelib", "ensurepip"})


def filesystem_digest(*, python: Path, prefix: Path, python_version: str, packages: Path, executor: Path) -> str:
    """Return the SHA-256, hexadecimal, of a filesystem as it is on disk now.

    It covers the Python build (executable, libraries, standard library), every file of ``packages`` and ``executor``
    with its path in them, and the host's shared libraries that any of these is linked against. Takes a second or two
    for some hundred MB. Raises ``OSError`` when a file can't be read.
    """
    stdlib = prefix / "lib" / f"python{python_version}"
    files = {"python": python}
    files |= {f"stdlib/{name}": path for name, path in _tree(stdlib, _UNUSED_OF_STDLIB)}
    files |= {f"packages/{name}": path for name, path in _tree(packages)}
    files |= {f"executor/{name}": path for name, path in _tree(executor)}
    binaries = [path for path in files.values() if path == python or ".so" in path.suffixes]
    libraries = host_libraries(binaries, (prefix / "lib", *LIBRARY_FOLDERS))
    files |= {f"library/{name}": path for name, path in libraries.items() if path is not None}
    # A library that is not there is part of the filesystem as well: one that appears changes what runs.
    absent = (f"library/{name} absent" for name, path in libraries.items() if path is None)
    return _digest((*_hashed(files), *absent))


def tree_digest(folder: Path) -> str:
    """Return the SHA-256, hexadecimal, of every file below ``folder`` with its path in it, byte code left out."""
    return _digest(_hashed(dict(_tree(folder))))


def _tree(top: Path, without: frozenset[str] = frozenset()) -> Iterator[tuple[str, Path]]:
    skipped = _DERIVED_FOLDERS | without
    for folder, folders, names in os.walk(top):
        # The folder of a static libpython alone is larger than the rest and never loaded.
        folders[:] = [name for name in folders if name not in skipped and not name.startswith("config-")]
        for name in names:
            path = Path(folder, name)
            if path.is_file():
                yield path.relative_to(top).as_posix(), path


def _hashed(files: dict[str, Path]) -> list[str]:
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return [f"{name} {digest}" for name, digest in zip(files, pool.map(file_digest, files.values()), strict=True)]


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()
