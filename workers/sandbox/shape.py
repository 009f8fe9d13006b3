"""The shape of a sandbox: everything of it that a snapshot depends on, and nothing of a single sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from workers.executor import layout
from workers.sandbox.filesystem import Filesystem

Network = Literal["none", "sandbox", "host"]
Gpu = Literal["none", "nvproxy"]

_SYSTEM_DIRS = ("/usr", "/lib", "/lib64", "/bin")
_UNPRIVILEGED_ID = 65534
_NAMESPACES = ("pid", "network", "ipc", "uts", "mount")
_READ_ONLY = ("ro", "rbind", "nosuid", "nodev")
_MAX_TASKS = 512
"""Processes and threads inside; one too many is refused with EAGAIN."""
_MAX_HOST_TASKS = 2048
"""Processes and threads that gVisor needs for them on the host; one too many ends the sandbox."""


@dataclass(frozen=True)
class Mount:
    """A mount inside the sandbox; its source on the host is no part of the shape."""

    destination: str
    type: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Rlimit:
    """A resource limit of the sandboxed processes, soft and hard."""

    name: str
    limit: int


@dataclass(frozen=True)
class SandboxShape:
    """What all sandboxes of a worker have in common. A snapshot restores only into the shape it was taken in."""

    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    working_directory: str
    uid: int
    gid: int
    capabilities: tuple[str, ...]
    rlimits: tuple[Rlimit, ...]
    namespaces: tuple[str, ...]
    mounts: tuple[Mount, ...]
    overlay: str
    network: Network
    gpu: Gpu
    cpu_limit: float | None = None
    """Cores that a call has which does not say, or None for no limit."""
    pids_limit: int | None = None
    """Processes and threads as the host counts them."""


def sandbox_shape(
    filesystem: Filesystem,
    *,
    network: Network = "none",
    overlay: str = "root:memory",
    gpu: Gpu = "none",
    tmp_bytes: int = 1 << 30,
    system_dirs: Sequence[str] = _SYSTEM_DIRS,
) -> SandboxShape:
    """Return the shape of sandboxes that run ``filesystem``'s Python; ``tmp_bytes`` bounds /tmp and /dev/shm each.

    Of ``system_dirs`` those are mounted that this host has.
    """
    python_path = f"{layout.EXECUTOR_DIR}:{layout.PACKAGES_DIR}"
    tmpfs = ("nosuid", "nodev", "mode=1777", f"size={tmp_bytes}")
    read_only = [directory for directory in system_dirs if Path(directory).is_dir()]
    if not any(filesystem.prefix.is_relative_to(directory) for directory in read_only):
        read_only.append(str(filesystem.prefix))
    read_only += [str(layout.EXECUTOR_DIR), str(layout.PACKAGES_DIR), str(layout.LAYERS_DIR)]
    return SandboxShape(
        # -S and -s: no packages of the host; -P: no module is imported from the working directory.
        command=(str(filesystem.python), "-S", "-s", "-P", "-m", "workers.executor"),
        environment=(
            ("HOME", "/tmp"),  # noqa: S108 - the sandbox's own
            ("LANG", "C.UTF-8"),
            ("PATH", "/usr/local/bin:/usr/bin:/bin"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
            ("PYTHONPATH", python_path),
        ),
        working_directory="/tmp",  # noqa: S108 - the sandbox's own
        uid=_UNPRIVILEGED_ID,
        gid=_UNPRIVILEGED_ID,
        capabilities=(),
        rlimits=(Rlimit("RLIMIT_CORE", 0), Rlimit("RLIMIT_NOFILE", 4096), Rlimit("RLIMIT_NPROC", _MAX_TASKS)),
        # Without one of its own, a sandbox is in the worker's network namespace.
        namespaces=tuple(name for name in _NAMESPACES if (name, network) != ("network", "host")),
        mounts=(
            Mount("/proc", "proc", ()),
            *(Mount(destination, "bind", _READ_ONLY) for destination in read_only),
            Mount(str(layout.CONTROL_DIR), "bind", ("rw", "rbind", "nosuid", "nodev")),
            Mount("/tmp", "tmpfs", tmpfs),  # noqa: S108 - the sandbox's own
            Mount("/dev/shm", "tmpfs", tmpfs),  # noqa: S108 - the sandbox's own
        ),
        overlay=overlay,
        network=network,
        gpu=gpu,
        pids_limit=_MAX_HOST_TASKS,
    )
