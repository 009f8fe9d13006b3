"""Control groups: what bounds a sandbox's memory, CPU and processes.

A sandbox's processes are in a group of its own from their first instruction, because the ``runsc create`` that starts
them enters it. runsc itself leaves groups alone: a created sandbox fits any call, so its limits change when a call
takes it. Groups are named ``readie/<run folder, quoted>/<sandbox>``, which tells whose they are.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from workers.sandbox.hierarchy import CgroupsUnavailableError, Hierarchy, find_hierarchy, unmake
from workers.sandbox.oom import OomWatcher

CPU_PERIOD_MICROSECONDS = 100_000
_LEAST_QUOTA_MICROSECONDS = 1_000
_BACKGROUND_PART = 16
"""A group in the background gets this part of the CPU time of another, while both want all they can get."""

_RECORD = "cgroups"
"""File of a run folder that lists where its groups are."""
_REMOVE_SECONDS = 10.0
_REMOVE_RETRY_SECONDS = 0.005


class LimitError(Exception):
    """A limit can't be set; the text says why."""


class MemoryHeldError(LimitError):
    """More memory is held than is to be the limit."""


@dataclass(frozen=True)
class Limits:
    """What a group may use; ``None`` is without limit. ``cpu`` counts cores."""

    memory_bytes: int | None = None
    cpu: float | None = None
    pids: int | None = None


class Cgroup(ABC):
    """One sandbox's group. ``entries`` are the files into which a process writes 0 to enter it."""

    def __init__(self, *folders: Path) -> None:
        """Make the group, one folder for each hierarchy it is in."""
        self._folders = folders
        for folder in folders:
            folder.mkdir()
        self.entries = tuple(folder / "cgroup.procs" for folder in folders)

    @abstractmethod
    def limit_memory(self, memory_bytes: int | None) -> None:
        """Bound its memory, which includes what its files on tmpfs hold.

        Raises ``MemoryHeldError`` when it holds more already, as far as the kernel tells; else it then ends.
        """

    @abstractmethod
    def limit_cpu(self, cores: float | None) -> None:
        """Bound its share of CPU time."""

    @abstractmethod
    def set_background(self, on: bool) -> None:
        """Let other groups have the CPU first, or no more."""

    def limit_pids(self, count: int | None) -> None:
        """Bound its processes and threads as the host counts them."""
        (self._folders[-1] / "pids.max").write_text(_or_max(count))

    @property
    @abstractmethod
    def memory_peak_bytes(self) -> int:
        """The most it ever held."""

    @property
    @abstractmethod
    def out_of_memory(self) -> bool:
        """Whether processes of it were killed because there was no memory left."""

    @property
    def out_of_pids(self) -> bool:
        """Whether it wanted more processes than it may have."""
        return _counter(self._folders[-1] / "pids.events", "max") > 0

    def remove(self) -> None:
        """Kill what is left in it and remove it; ``TimeoutError`` when that does not work within 10 seconds."""
        _remove(self._folders)


class _Version1(Cgroup):
    """Folders of the three controllers. The kernel kills one process when memory ends; this kills the others."""

    def __init__(self, memory: Path, cpu: Path, pids: Path, watcher: OomWatcher, exhausted: Callable[[], None]) -> None:
        super().__init__(memory, cpu, pids)
        self._memory, self._cpu = memory, cpu
        self._watcher = watcher
        self._exhausted = exhausted
        self._was_exhausted = False
        with contextlib.suppress(FileNotFoundError):  # a kernel without swap
            # What is swapped out would not count.
            (memory / "memory.swappiness").write_text("0")
        self._event: int | None = watcher.watch(memory, self._memory_ended)

    def limit_memory(self, memory_bytes: int | None) -> None:
        try:
            (self._memory / "memory.limit_in_bytes").write_text(str(-1 if memory_bytes is None else memory_bytes))
        except OSError as error:
            held = int((self._memory / "memory.usage_in_bytes").read_text())
            raise MemoryHeldError(f"it holds {held} bytes: {error.strerror}") from error

    def limit_cpu(self, cores: float | None) -> None:
        (self._cpu / "cpu.cfs_quota_us").write_text(str(-1 if cores is None else _quota(cores)))

    def set_background(self, on: bool) -> None:
        (self._cpu / "cpu.shares").write_text(str(1024 // _BACKGROUND_PART if on else 1024))

    @property
    def memory_peak_bytes(self) -> int:
        return int((self._memory / "memory.max_usage_in_bytes").read_text())

    @property
    def out_of_memory(self) -> bool:
        return self._was_exhausted or _counter(self._memory / "memory.oom_control", "oom_kill") > 0

    def remove(self) -> None:
        if self._event is not None:
            self._watcher.forget(self._event)
            self._event = None
        super().remove()

    def _memory_ended(self) -> None:
        self._was_exhausted = True
        self._exhausted()


class _Version2(Cgroup):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder
        (folder / "memory.oom.group").write_text("1")
        with contextlib.suppress(FileNotFoundError):  # a kernel without swap
            (folder / "memory.swap.max").write_text("0")

    def limit_memory(self, memory_bytes: int | None) -> None:
        (self._folder / "memory.max").write_text(_or_max(memory_bytes))

    def limit_cpu(self, cores: float | None) -> None:
        quota = "max" if cores is None else str(_quota(cores))
        (self._folder / "cpu.max").write_text(f"{quota} {CPU_PERIOD_MICROSECONDS}")

    def set_background(self, on: bool) -> None:
        (self._folder / "cpu.weight").write_text(str(100 // _BACKGROUND_PART if on else 100))

    @property
    def memory_peak_bytes(self) -> int:
        try:
            return int((self._folder / "memory.peak").read_text())
        except FileNotFoundError:  # before Linux 5.19
            return int((self._folder / "memory.current").read_text())

    @property
    def out_of_memory(self) -> bool:
        return _counter(self._folder / "memory.events", "oom_kill") > 0


class RunCgroups:
    """The groups of the sandboxes of one run folder. Safe to use from several threads."""

    def __init__(self, hierarchy: Hierarchy, run_dir: Path) -> None:
        """Make the folders that hold them; ``OSError`` when that can't be."""
        self._folders = hierarchy.make(_name(run_dir))
        self._watcher = OomWatcher() if hierarchy.version == 1 else None

    def create(self, sandbox_id: str, limits: Limits, exhausted: Callable[[], None]) -> Cgroup:
        """Make a sandbox's group.

        ``exhausted`` is called when it is out of memory and the kernel does not end all of it by itself.
        """
        folders = [folder / sandbox_id for folder in self._folders]
        group: Cgroup
        try:
            if self._watcher is not None:
                memory, cpu, pids = folders
                group = _Version1(memory, cpu, pids, self._watcher, exhausted)
            else:
                group = _Version2(*folders)
            group.limit_memory(limits.memory_bytes)
            group.limit_cpu(limits.cpu)
            group.limit_pids(limits.pids)
        except OSError:
            _remove(folders)
            raise
        return group

    def close(self) -> None:
        """Remove the folders; all groups have been removed."""
        if self._watcher is not None:
            self._watcher.close()
        unmake(self._folders)


def open_cgroups(run_dir: Path) -> RunCgroups | None:
    """Return the groups of a run folder, ``None`` where none can be made (``limits_in_force`` tells why)."""
    try:
        hierarchy = find_hierarchy()
        # Where groups are made depends on the group a process is in; the next worker may be in another.
        record = "\n".join(map(str, hierarchy.folders(_name(run_dir))))
        (run_dir / _RECORD).write_text(record)
        return RunCgroups(hierarchy, run_dir)
    except (CgroupsUnavailableError, OSError):
        return None


def remove_leftover_cgroups(run_dir: Path) -> None:
    """Remove all groups of ``run_dir`` and of the run folders in it, with what still runs in them."""
    for record in (*run_dir.glob(_RECORD), *run_dir.glob(f"*/{_RECORD}")):
        for folder in map(Path, record.read_text().splitlines()):
            if folder.name == _name(record.parent) and folder.is_dir():
                _remove([entry for entry in folder.iterdir() if entry.is_dir()])
                unmake([folder])
        record.unlink()


def _name(run_dir: Path) -> str:
    return quote(str(run_dir), safe="")


def _remove(folders: list[Path] | tuple[Path, ...]) -> None:
    deadline = time.monotonic() + _REMOVE_SECONDS
    for folder in folders:
        while True:
            try:
                folder.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                # Its processes have not ended, or the kernel has not taken note of it yet; nothing tells when.
                if time.monotonic() > deadline:
                    raise TimeoutError(f"control group {folder} can't be removed") from None
                _kill(folder)
                time.sleep(_REMOVE_RETRY_SECONDS)
                continue
            break


def _kill(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for pid in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def _counter(file: Path, name: str) -> int:
    for line in file.read_text().splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def _quota(cores: float) -> int:
    return max(_LEAST_QUOTA_MICROSECONDS, round(cores * CPU_PERIOD_MICROSECONDS))


def _or_max(value: int | None) -> str:
    return "max" if value is None else str(value)
