"""Where on this machine control groups can be made, version 1 or 2 of the kernel's interface."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

CONTROLLERS = ("memory", "cpu", "pids")

_NAME = "readie"
_ENABLE = " ".join(f"+{controller}" for controller in CONTROLLERS)
_ATTEMPTS = 5


class CgroupsUnavailableError(Exception):
    """No control groups can be made here; the text says why."""


@dataclass(frozen=True)
class Hierarchy:
    """Where groups are made: in version 1 below one folder for each of ``CONTROLLERS``, in version 2 below one for all.

    These folders, named ``readie``, are there while one of their groups is.
    """

    version: Literal[1, 2]
    parents: tuple[Path, ...]

    def folders(self, name: str) -> tuple[Path, ...]:
        """Return the folders that hold a run's groups."""
        return tuple(parent / name for parent in self.parents)

    def make(self, name: str) -> tuple[Path, ...]:
        """Make these folders and return them; ``OSError`` when that can't be."""
        folders = self.folders(name)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                for folder in folders:
                    folder.mkdir(parents=True, exist_ok=True)
                    if self.version == 2:
                        _enable(folder.parent)
                        _enable(folder)
                self._weigh()
                break
            except FileNotFoundError:
                # Another worker's last group went at this moment, and the common folder with it.
                if attempt == _ATTEMPTS:
                    raise
        return folders

    def _weigh(self) -> None:
        """Give all sandboxes together the weight of a process for each core; else they had that of one."""
        file, default, most = ("cpu.shares", 1024, 262_144) if self.version == 1 else ("cpu.weight", 100, 10_000)
        cpu = self.parents[CONTROLLERS.index("cpu") if self.version == 1 else 0]
        (cpu / file).write_text(str(min(most, default * (os.cpu_count() or 1))))


def unmake(folders: Iterable[Path]) -> None:
    """Remove empty folders of a run, and the common one when it was the last."""
    for folder in folders:
        with contextlib.suppress(FileNotFoundError):
            folder.rmdir()
        with contextlib.suppress(OSError):
            folder.parent.rmdir()


@dataclass(frozen=True)
class _Mount:
    root: str
    point: Path
    type: str
    options: tuple[str, ...]


def find_hierarchy() -> Hierarchy:
    """Return where this process can make groups; raises ``CgroupsUnavailableError``.

    In the group this process is in, where that can be, so that what bounds the worker bounds its sandboxes too; else
    at the top of the mounted hierarchy.
    """
    mounts, own = list(_mounts()), _own_groups()
    version_1 = {
        controller: mount
        for mount in mounts
        for controller in CONTROLLERS
        if mount.type == "cgroup" and controller in mount.options
    }
    if len(version_1) == len(CONTROLLERS):
        return Hierarchy(1, tuple(_parent(version_1[name], own.get(name, "/"), 1) for name in CONTROLLERS))
    for mount in mounts:
        if mount.type == "cgroup2" and set(CONTROLLERS) <= _controllers(mount.point):
            return Hierarchy(2, (_parent(mount, own.get("", "/"), 2),))
    raise CgroupsUnavailableError(f"no mounted hierarchy has the controllers {', '.join(CONTROLLERS)}")


def memory_limit_bytes() -> int | None:
    """Return the lowest memory limit that the groups around this process have, ``None`` without one."""
    limits = []
    for mount in _mounts():
        if mount.type == "cgroup" and "memory" in mount.options:
            controller, file = "memory", "memory.limit_in_bytes"
        elif mount.type == "cgroup2":
            controller, file = "", "memory.max"
        else:
            continue
        group = _inside(mount, _own_groups().get(controller, "/"))
        while group is not None and group.is_relative_to(mount.point):
            with contextlib.suppress(OSError, ValueError):  # the top has no such file; "max" is no number
                limits.append(int((group / file).read_text()))
            group = group.parent
    return min(limits, default=None)


def _parent(mount: _Mount, own: str, version: Literal[1, 2]) -> Path:
    reason = ""
    for folder in (_inside(mount, own), mount.point):
        if folder is None:
            continue
        try:
            if version == 2:
                # Refused in a group that has processes, unless it is the top of all.
                _enable(folder)
            made = folder / _NAME
            made.mkdir(exist_ok=True)
        except OSError as error:
            reason = reason or f"{folder}: {error.strerror}"
            continue
        with contextlib.suppress(OSError):
            made.rmdir()
        return made
    raise CgroupsUnavailableError(f"no group can be made in {reason}")


def _inside(mount: _Mount, group: str) -> Path | None:
    """Return where ``group`` is below the mount, which may show a part of the hierarchy only."""
    try:
        return mount.point / Path(group).relative_to(mount.root)
    except ValueError:
        return None


def _enable(folder: Path) -> None:
    (folder / "cgroup.subtree_control").write_text(_ENABLE)


def _controllers(point: Path) -> set[str]:
    try:
        return set((point / "cgroup.controllers").read_text().split())
    except OSError:
        return set()


def _mounts() -> Iterator[_Mount]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, options = after.split(maxsplit=2)
        if kind in ("cgroup", "cgroup2"):
            yield _Mount(root, Path(point), kind, tuple(options.split(",")))


def _own_groups() -> dict[str, str]:
    groups = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), path))
    return groups
