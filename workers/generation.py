"""Whether this worker may restore the checkpoints of a generation."""

import logging
from dataclasses import dataclass
from pathlib import Path

from readie.generations.disk import Generation

_BUILD_AGAIN = "run `make generation` on this machine"


@dataclass(frozen=True)
class Identity:
    """What decides whether this process's sandboxes can continue a snapshot; the fields are those of ``Manifest``."""

    runsc_version: str
    fingerprint: str
    filesystem_digest: str
    python: str
    cpu_features: frozenset[str]
    platform: str
    wire_version: int


@dataclass(frozen=True)
class Mismatch:
    """A difference between a generation and a worker."""

    field: str
    generation_value: str
    worker_value: str
    fix: str

    def __str__(self) -> str:
        """Return one line for a log."""
        return f"{self.field}: the generation has {self.generation_value}, this worker {self.worker_value}; {self.fix}"


@dataclass(frozen=True)
class Decision:
    """What a worker does with a generation, and what it says about it."""

    keep: bool
    level: int
    """A level of ``logging``."""
    messages: tuple[str, ...]


def check(generation: Generation, own: Identity) -> list[Mismatch]:
    """Compare what a generation was captured with and what this worker has; empty when they fit."""
    manifest = generation.manifest
    settings = f"SANDBOX_NETWORK={manifest.network} SANDBOX_OVERLAY={manifest.overlay} SANDBOX_GPU={manifest.gpu}"
    fixes = {
        "runsc_version": f"start the worker with runsc {manifest.runsc_version} (READIE_RUNSC), or {_BUILD_AGAIN}",
        "fingerprint": f"start the worker with {settings} as at capture, or {_BUILD_AGAIN}",
        "filesystem_digest": f"use the flavor's filesystem that was built with this generation, or {_BUILD_AGAIN}",
        "python": f"start the worker with Python {manifest.python}, or {_BUILD_AGAIN}",
        "platform": f"start the worker with runsc's platform {manifest.platform}, or {_BUILD_AGAIN}",
        "wire_version": f"use the release of readie that captured this generation, or {_BUILD_AGAIN}",
    }
    mismatches = [
        Mismatch(field, str(getattr(manifest, field)), str(getattr(own, field)), fix)
        for field, fix in fixes.items()
        if getattr(manifest, field) != getattr(own, field)
    ]
    if missing := sorted(set(manifest.cpu_features) - own.cpu_features):
        fix = f"run the worker on a CPU that has them, or {_BUILD_AGAIN}"
        mismatches.append(Mismatch("cpu_features", " ".join(missing), "none of these", fix))
    return mismatches


def decide(mismatches: list[Mismatch], *, strict: bool) -> Decision:
    """Say whether a worker keeps a generation's checkpoints: with a mismatch only when it is not ``strict``."""
    if not mismatches:
        return Decision(keep=True, level=logging.INFO, messages=())
    lines = [str(mismatch) for mismatch in mismatches]
    if strict:
        lines.append("all checkpoints are dropped, every call starts cold (CHECKPOINT_STRICT_COMPAT=false keeps them)")
        return Decision(keep=False, level=logging.ERROR, messages=tuple(lines))
    lines.append("checkpoints are kept (CHECKPOINT_STRICT_COMPAT=false); restores that fail become cold starts")
    return Decision(keep=True, level=logging.WARNING, messages=tuple(lines))


def host_cpu_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Return the names in the ``flags`` line of this machine's first CPU."""
    for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return frozenset()
