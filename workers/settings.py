"""Settings of a worker process."""

import os
from pathlib import Path

from pydantic import Field

from readie.settings import FlavorSettings


class WorkerSettings(FlavorSettings):
    """Read from ``READIE_*`` (and the names that checkpoints fix: ``CHECKPOINT_*``, ``SANDBOX_*``)."""

    slots: int = Field(default_factory=lambda: 2 * (os.cpu_count() or 1), ge=1, le=1000)
    """Calls that run at once. Default: two for each core."""
    created_sandboxes: int = Field(default=2, ge=0, le=1000)
    """Sandboxes made ahead; each fits any checkpoint and a cold start, and holds about 13 MB."""
    run: Path = Path("/run/readie")
    """Sandboxes' files while they live. Short: sockets lie below it."""
    checkpoint_strict_compat: bool = Field(default=True, validation_alias="CHECKPOINT_STRICT_COMPAT")
    """Drop a generation that does not fit this worker; ``false`` keeps it with a warning."""
    lease_seconds: int = Field(default=10, ge=2)
    """A worker that has not renewed its entry for this long is lost."""
    lease_renewal_seconds: float = Field(default=2.0, gt=0)
    start_timeout_seconds: float = Field(default=30.0, gt=0)
    """Longest restore or start of a sandbox; a restore that takes longer becomes a cold start."""
    result_seconds: int = Field(default=3600, ge=1)
    """How long a result is kept."""
    max_result_bytes: int = Field(default=256 * 1024 * 1024, ge=1024)
    """Largest pickled result."""
