"""Which limits hold on this machine, and by what means."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from workers.sandbox.cgroup import Limits, RunCgroups
from workers.sandbox.hierarchy import CgroupsUnavailableError, find_hierarchy, memory_limit_bytes
from workers.sandbox.runsc import entering

_PROBE_LIMITS = Limits(memory_bytes=64 << 20, cpu=1.0, pids=16)


@dataclass(frozen=True)
class LimitsInForce:
    """What bounds a sandbox here. ``problem`` says why control groups can't be used, empty where they can.

    ``memory_bytes`` is the most that a call can be given, ``cpu`` the most cores, ``None`` where CPU can't be bounded.
    """

    memory_bytes: int
    cpu: float | None
    mechanism: str
    problem: str = ""

    def __str__(self) -> str:
        if not self.problem:
            return f"memory, CPU and processes of a sandbox are bounded by {self.mechanism}"
        return (
            f"memory of a sandbox is bounded by {self.mechanism} only, its CPU not at all, because control groups "
            f"can't be used: {self.problem}. On a host, run the worker as root; in a container, mount the host's "
            "/sys/fs/cgroup read-write (with version 2 of control groups also cgroup: host)"
        )


def limits_in_force() -> LimitsInForce:
    """Find out, by putting a process into a control group; takes some 10 ms."""
    memory_bytes = machine_memory_bytes()
    try:
        version = _try_cgroups()
    except (CgroupsUnavailableError, OSError) as error:
        return LimitsInForce(memory_bytes, None, "the address space of each process (RLIMIT_AS)", str(error))
    return LimitsInForce(memory_bytes, float(os.cpu_count() or 1), f"control groups (version {version})")


def _try_cgroups() -> int:
    hierarchy = find_hierarchy()
    groups = RunCgroups(hierarchy, Path(f"/probe-{os.getpid()}"))
    try:
        group = groups.create("probe", _PROBE_LIMITS, lambda: None)
        try:
            status = subprocess.run([*entering(group.entries), "/bin/true"], stderr=subprocess.DEVNULL, check=False)
        finally:
            group.remove()
    finally:
        groups.close()
    if status.returncode != 0:
        raise CgroupsUnavailableError(f"no process can be put into a group below {hierarchy.parents[0].parent}")
    return hierarchy.version


def machine_memory_bytes() -> int:
    """Return how much memory this process and its sandboxes can have together."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = memory_limit_bytes()
    return total if limit is None else min(total, limit)
