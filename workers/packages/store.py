"""Layers on disk: found, published whole, held while in use, and removed when they are too many."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import secrets
import shutil
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pydantic import Field, ValidationError

from readie.generations.publish import publish, staging
from readie.protocol.call import Message

_PASSABLE = 0o711
_LOOK_SECONDS = 0.05
_IN_USE = "in-use"
_UNUSED_SECONDS = 7 * 86400.0
_ABANDONED_SECONDS = 3600.0
"""No layer is being built for so long: it is what a killed worker left."""


class LayerRecord(Message):
    """What is known of the layer that a set of requirements led to."""

    name: str | None
    """Of its folder; ``None`` when the flavor has all that is needed."""
    pins: dict[str, str] = Field(default_factory=dict)
    """Versions by package."""
    modules: tuple[str, ...] = ()
    """Top-level modules."""
    bytes: int = 0


class LayerStore:
    """The layers of one filesystem, below ``folder``. Several workers of a machine may share it.

    Sandboxes see ``layers``, and pass through it without being able to list it: the names in there follow from a
    secret, so that a function finds no layer but its call's.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        """Make what is missing of the folder; the layers in it may hold ``most_bytes`` together."""
        self._most_bytes = most_bytes
        self.layers = folder / "layers"
        self._records, self._locks = folder / "records", folder / "locks"
        for each in (self.layers, self._records, self._locks):
            each.mkdir(parents=True, exist_ok=True)
        self.layers.chmod(_PASSABLE)
        for abandoned in self.layers.glob(".staging-*"):
            if time.time() - abandoned.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(abandoned, ignore_errors=True)
        self._secret = _secret(folder / "secret")
        self._in_use = os.open(folder / _IN_USE, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._in_use, fcntl.LOCK_SH)
        os.utime(self._in_use)
        _remove_unused(folder.parent)

    def close(self) -> None:
        """Say that this worker uses none of them any more."""
        os.close(self._in_use)

    def find(self, key: str) -> LayerRecord | None:
        """Return what the requirements with this key led to, ``None`` when that is not known or no longer there."""
        try:
            record = LayerRecord.model_validate_json((self._records / key).read_bytes())
        except (OSError, ValidationError):
            return None
        if record.name is not None and not (self.layers / record.name).is_dir():
            return None
        return record

    def add(self, key: str, pins: Mapping[str, str], packed: io.BytesIO, *, trusted: bool) -> LayerRecord:
        """Publish a layer from a tar and return its record.

        Requirements with the same pins share a layer if these are to be ``trusted``; else nobody but who asks for the
        very same requirements gets it.
        Raises ``ValueError`` when the tar is not one of plain files and folders.
        """
        content = repr(sorted(pins.items()) if trusted else key).encode()
        name = hashlib.sha256(self._secret + content).hexdigest()[:32] if pins else None
        record = LayerRecord(name=name, pins=dict(pins))
        if name is not None:
            with staging(self.layers) as staged:
                try:
                    with tarfile.open(fileobj=packed, mode="r:") as archive:
                        archive.extractall(staged, filter="data")
                except tarfile.TarError as error:
                    raise ValueError(f"what the sandbox installed can't be unpacked: {error}") from error
                size = _make_readable(staged)
                record = record.model_copy(update={"modules": _top_level(staged), "bytes": size})
                with contextlib.suppress(FileExistsError, OSError):
                    publish(staged, self.layers / name)  # another worker may have been faster
        draft = self._records / f".{key}.{os.getpid()}"
        draft.write_text(record.model_dump_json())
        draft.rename(self._records / key)
        self._make_room()
        return record

    def hold(self, record: LayerRecord) -> int | None:
        """Return a descriptor that keeps a layer until it is closed; ``None`` when the layer is gone."""
        assert record.name is not None
        descriptor = os.open(self._locks / record.name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if not (self.layers / record.name).is_dir() or not os.fstat(descriptor).st_nlink:
            os.close(descriptor)
            return None
        os.utime(descriptor)
        return descriptor

    @contextlib.contextmanager
    def building(self, key: str, check: Callable[[], None]) -> Iterator[None]:
        """Be the only one on this machine who builds for a key; ``check`` is called while waiting, and may raise."""
        descriptor = os.open(self._locks / key, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            while True:
                check()
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                # Neither another process nor a cancelled call could wake a thread that waits for a file's lock.
                time.sleep(_LOOK_SECONDS)
            yield
        finally:
            os.close(descriptor)

    def _make_room(self) -> None:
        """Remove the layers that were longest not used, of those that nobody uses, until the rest fit."""
        sizes: dict[str, int] = {}
        for path in self._records.iterdir():
            record = self.find(path.name)
            if record is None and not path.name.startswith("."):
                path.unlink(missing_ok=True)
            elif record is not None and record.name is not None:
                sizes[record.name] = record.bytes
        held = sum(sizes.values())
        for lock in sorted(self._locks.iterdir(), key=lambda path: path.stat().st_mtime):
            if held <= self._most_bytes:
                return
            if lock.name in sizes and self._remove(lock):
                held -= sizes[lock.name]

    def _remove(self, lock: Path) -> bool:
        with lock.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            gone = self.layers / f".staging-removed-{secrets.token_hex(8)}"
            with contextlib.suppress(FileNotFoundError):
                (self.layers / lock.name).rename(gone)
                shutil.rmtree(gone)
            lock.unlink()
        return True


def _remove_unused(folders: Path) -> None:
    """Remove the layers of filesystems that no worker has served for long: they may be gone themselves."""
    for lock in folders.glob(f"*/{_IN_USE}"):
        if time.time() - lock.stat().st_mtime < _UNUSED_SECONDS:
            continue
        with lock.open("r+") as file, contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)


def _secret(path: Path) -> bytes:
    try:
        with path.open("xb") as file:
            path.chmod(0o600)
            file.write(secrets.token_bytes(32))
    except FileExistsError:
        pass
    return path.read_bytes()


def _make_readable(top: Path) -> int:
    """Let the sandboxed user read everything; return the size of it."""
    size = 0
    for folder, _, names in os.walk(top):
        Path(folder).chmod(0o755)
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink():
                size += path.stat().st_size
                path.chmod(0o755 if path.stat().st_mode & 0o111 else 0o644)
    return size


def _top_level(layer: Path) -> tuple[str, ...]:
    names = {
        entry.name.partition(".")[0] for entry in layer.iterdir() if not entry.name.endswith((".dist-info", ".pth"))
    }
    return tuple(sorted(name for name in names if name.isidentifier() and name not in ("bin", "__pycache__")))
