"""The name of a sandbox shape, by which a worker knows whether a checkpoint can restore into its sandboxes."""

from __future__ import annotations

import dataclasses
import hashlib
import json

from workers.sandbox.shape import SandboxShape


def fingerprint(shape: SandboxShape) -> str:
    """Return the SHA-256, in hex, of everything in ``shape``; equal for equal shapes, on any machine."""
    fields = dataclasses.asdict(shape)
    # Of these the order means nothing; that of mounts and of the command does.
    for name in ("environment", "capabilities", "namespaces"):
        fields[name] = sorted(fields[name])
    fields["rlimits"] = sorted(fields["rlimits"], key=lambda rlimit: (rlimit["name"], rlimit["limit"]))
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
