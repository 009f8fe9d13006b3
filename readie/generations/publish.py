"""Folders that appear whole or not at all, also when the machine stops in the middle."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from readie.errors import ReadieError

_STAGING: Final = ".staging-"
_LOCK: Final = ".lock"


class BusyError(ReadieError):
    """Another process builds in this folder."""


@contextmanager
def building_in(folder: Path) -> Iterator[None]:
    """Be the only one who builds in ``folder``; what a killed builder left half done is removed first.

    Raises ``BusyError`` when somebody else builds there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(f"another `make generation` is at work in {folder}; wait for its end") from None
        for abandoned in folder.glob(f"{_STAGING}*"):
            shutil.rmtree(abandoned)
        yield


@contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """Give a new folder inside ``folder`` to build in; it is removed at the end unless it was published."""
    staged = Path(tempfile.mkdtemp(prefix=_STAGING, dir=folder))
    staged.chmod(0o755)
    try:
        yield staged
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def publish(staged: Path, target: Path) -> None:
    """Move ``staged`` to ``target`` in one step, after all of it has reached the disk."""
    for folder, _, names in os.walk(staged, topdown=False):
        for name in names:
            if not (path := Path(folder, name)).is_symlink():
                _sync(path)
        _sync(Path(folder))
    staged.rename(target)
    _sync(target.parent)


def switch(link: Path, target: str) -> None:
    """Let the symbolic link ``link`` lead to ``target`` in its own folder, in one step."""
    draft = link.with_name(f".{link.name}")
    draft.unlink(missing_ok=True)
    draft.symlink_to(target)
    draft.rename(link)
    _sync(link.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
