"""The OCI runtime specification (``config.json``) of one sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from workers.executor import layout
from workers.sandbox.filesystem import Filesystem
from workers.sandbox.shape import Mount, SandboxShape


def mount_sources(filesystem: Filesystem, layers: Path, control_dir: Path) -> dict[str, Path]:
    """Return where on the host the bind mounts come from that do not come from the path they are mounted at."""
    return {
        str(layout.EXECUTOR_DIR): filesystem.executor,
        str(layout.PACKAGES_DIR): filesystem.packages,
        str(layout.LAYERS_DIR): layers,
        str(layout.CONTROL_DIR): control_dir,
    }


def oci_spec(
    shape: SandboxShape,
    *,
    root: Path,
    sources: Mapping[str, Path],
    hostname: str,
    network_namespace: str | None = None,
) -> dict[str, object]:
    """Return the specification of a sandbox of ``shape``; its CPU and process limits are its control group's.

    ``root`` is the directory on the host that becomes /; a bind mount that ``sources`` does not name comes from the
    same path on the host, symbolic links followed. ``network_namespace`` is the path of one that is there already.
    """
    return {
        "ociVersion": "1.0.2",
        "process": {
            "args": list(shape.command),
            "env": [f"{name}={value}" for name, value in shape.environment],
            "cwd": shape.working_directory,
            "user": {"uid": shape.uid, "gid": shape.gid},
            "capabilities": {
                kind: list(shape.capabilities)
                for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")
            },
            "rlimits": [{"type": rlimit.name, "soft": rlimit.limit, "hard": rlimit.limit} for rlimit in shape.rlimits],
            "noNewPrivileges": True,
            "terminal": False,
        },
        "root": {"path": str(root), "readonly": True},
        "hostname": hostname,
        "mounts": [_mount(mount, sources) for mount in shape.mounts],
        "linux": {
            "namespaces": [
                {"type": name, "path": network_namespace} if name == "network" and network_namespace else {"type": name}
                for name in shape.namespaces
            ],
        },
    }


def _mount(mount: Mount, sources: Mapping[str, Path]) -> dict[str, object]:
    source = (
        str(sources.get(mount.destination, Path(mount.destination).resolve())) if mount.type == "bind" else mount.type
    )
    return {
        "destination": mount.destination,
        "type": mount.type,
        "source": source,
        "options": list(mount.options),
    }
