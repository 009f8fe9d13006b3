"""Switching between the generations of a flavor, and removing old ones.

A process that serves a generation holds a shared lock (``flock``) on its manifest, and one on the ``filesystem.json``
of what its sandboxes see. Whoever removes one of these takes that lock alone first, and leaves what it can't have.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .disk import (
    CURRENT,
    MANIFEST,
    GenerationError,
    current_generation,
    generation_folders,
    generations_folder,
    load_generation,
)
from .publish import building_in, staging, switch

FILESYSTEM: Final = "filesystem.json"


@dataclass(frozen=True)
class Pruned:
    """What ``prune`` removed, or would."""

    generations: tuple[str, ...]
    filesystems: tuple[str, ...]
    """Digests."""
    freed_bytes: int
    in_use: tuple[str, ...]
    """Generations and filesystems that stayed because a process serves them."""


def find(data: Path, flavor: str, name: str) -> Path:
    """Return the folder of the generation that ``name`` means: ``current``, an id, or the beginning of one id alone.

    Raises ``GenerationError`` when there is none, or several.
    """
    if name == CURRENT:
        current = current_generation(data, flavor)
        if current is None:
            raise GenerationError(f"flavor {flavor!r} has no current generation; `make generation` makes one")
        return current
    folders = generation_folders(generations_folder(data, flavor))
    found = [folder for folder in folders if folder.name == name] or [
        folder for folder in folders if folder.name.startswith(name)
    ]
    if len(found) != 1:
        wanted = "no generation" if not found else f"{len(found)} generations"
        there = ", ".join(folder.name for folder in folders) or "none"
        raise GenerationError(f"flavor {flavor!r} has {wanted} {name!r}; there are: {there}")
    return found[0].resolve()


def use(data: Path, flavor: str, folder: Path) -> None:
    """Let ``current`` lead to the generation in ``folder``, in one step; running workers take it up by themselves.

    Raises ``GenerationError`` when it can't be read or is just being removed.
    """
    load_generation(folder)
    with _lock(folder / MANIFEST, fcntl.LOCK_SH) as locked:
        if not locked:
            raise GenerationError(f"{folder} is just being removed")
        switch(generations_folder(data, flavor) / CURRENT, folder.name)


def in_use(folder: Path) -> bool:
    """Return whether a process serves the generation in ``folder``."""
    with _lock(folder / MANIFEST, fcntl.LOCK_EX) as locked:
        return not locked


def prune(data: Path, flavor: str, *, keep: int, dry_run: bool = False) -> Pruned:
    """Remove the generations of ``flavor`` but the current one, those in use and the ``keep`` newest others.

    With them go the filesystems that none of the generations which stay was taken from, but for the one built last.
    What a killed build left goes as well. With ``dry_run`` nothing is removed.

    Raises ``BusyError`` while a generation of the flavor is being built.
    """
    home = generations_folder(data, flavor)
    filesystems = data / "flavors" / flavor
    with building_in(home), building_in(filesystems):
        current = current_generation(data, flavor)
        others = [folder for folder in generation_folders(home) if folder.resolve() != current]
        old = _Removal(home, dry_run=dry_run)
        for folder in others[keep:]:
            old.remove(folder, folder / MANIFEST)
        stay = [folder for folder in generation_folders(home) if folder.name not in old.removed]
        needed = {digest for folder in stay if (digest := _filesystem_digest(folder)) is not None}
        unneeded = _Removal(filesystems, dry_run=dry_run)
        for path in sorted(filesystems.glob(f"*/{FILESYSTEM}")):
            if not path.parent.is_symlink() and path.parent.name not in needed:
                unneeded.remove(path.parent, path)
    return Pruned(
        generations=tuple(old.removed),
        filesystems=tuple(unneeded.removed),
        freed_bytes=old.freed_bytes + unneeded.freed_bytes,
        in_use=(*old.in_use, *unneeded.in_use),
    )


def _filesystem_digest(generation: Path) -> str | None:
    try:
        return load_generation(generation).manifest.filesystem_digest
    except GenerationError:
        return None  # Nothing can be restored from it, so it needs none.


class _Removal:
    """Removes folders below ``home``, each in one step for whoever looks, but never the current one."""

    def __init__(self, home: Path, *, dry_run: bool) -> None:
        self._home = home
        self._dry_run = dry_run
        self.removed: list[str] = []
        self.in_use: list[str] = []
        self.freed_bytes = 0

    def remove(self, folder: Path, lock: Path) -> None:
        with _lock(lock, fcntl.LOCK_EX) as locked:
            # Asked under the lock, for somebody may have switched to it just now.
            if folder.resolve() == (self._home / CURRENT).resolve():
                return
            if not locked:
                self.in_use.append(folder.name)
                return
            self.freed_bytes += disk_bytes(folder)
            self.removed.append(folder.name)
            if not self._dry_run:
                with staging(self._home) as hidden:
                    folder.rename(hidden / folder.name)
                    shutil.rmtree(hidden)


def disk_bytes(folder: Path) -> int:
    """Return what the files below ``folder`` take on the disk, links to one file counted once."""
    sizes: dict[int, int] = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        sizes[status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


@contextmanager
def _lock(path: Path, kind: int) -> Iterator[bool]:
    """Give whether ``path`` could be locked, which it then is to the end of the block."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        # Whoever had the lock may have removed the file meanwhile.
        yield path.exists()
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)
