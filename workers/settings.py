"""Settings of a worker process."""

import os
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from readie.settings import FlavorSettings, ResultSettings

from .sandbox.limits import machine_memory_bytes

_LEAST_MEMORY_BYTES = 256 << 20


class WorkerSettings(FlavorSettings, ResultSettings):
    """Read from ``READIE_*`` (and the names that checkpoints fix: ``CHECKPOINT_*``, ``SANDBOX_*``)."""

    slots: int = Field(default_factory=lambda: 2 * (os.cpu_count() or 1), ge=1, le=1000)
    """Calls that run at once. Default: two for each core."""
    max_sessions: int = Field(default=32, ge=0, le=10_000)
    """Sessions that are kept at once. Each holds the memory that its first call reserved, whether it is idle or not."""
    evict_idle_sessions: bool = False
    """End the session that has been idle for longest where a call finds no room otherwise."""
    session_drain_seconds: float = Field(default=5.0, ge=0)
    """How long sessions stay open after a worker was told to stop."""
    created_sandboxes: int = Field(default=2, ge=0, le=1000)
    """Sandboxes made ahead; each fits any checkpoint and a cold start, and holds about 13 MB."""
    memory_bytes: int = Field(default_factory=lambda: machine_memory_bytes() * 9 // 10, ge=_LEAST_MEMORY_BYTES)
    """What all sandboxes may hold together. Default: nine tenths of the machine's memory."""
    sandbox_memory_bytes: int = Field(default=0, ge=0)
    """What a call may hold that does not ask for another amount. Default: ``READIE_MEMORY_BYTES`` shared out to the
    slots, 256 MiB at least."""
    ready_memory_bytes: int = Field(default_factory=lambda: min(machine_memory_bytes() // 16, 2 << 30), ge=0)
    """Memory for sandboxes that are restored ahead for the checkpoints in demand; 0 keeps none. Default: a sixteenth of
    this machine's, 2 GiB at the most."""
    packages_bytes: int = Field(default=4 << 30, ge=0)
    """Disk for what was installed for calls with ``packages=``; what is in use stays even above it."""
    run: Path = Path("/run/readie")
    """Sandboxes' files while they live; ``readie up`` has a folder below it for each stack. Short: for sockets."""
    checkpoint_strict_compat: bool = Field(default=True, validation_alias="CHECKPOINT_STRICT_COMPAT")
    """Drop a generation that does not fit this worker; ``false`` keeps it with a warning."""
    lease_seconds: int = Field(default=10, ge=2)
    """A worker that has not renewed its entry for this long is lost."""
    lease_renewal_seconds: float = Field(default=2.0, gt=0)
    """How often it renews its entry, and compares its calls with their records."""
    drain_seconds: float = Field(default=20.0, gt=0)
    """How long running calls may go on when the worker is asked to stop; asked again, it stops them at once."""
    start_timeout_seconds: float = Field(default=30.0, gt=0)
    """Longest restore or start of a sandbox; a restore that takes longer becomes a cold start."""
    max_result_bytes: int = Field(default=256 * 1024 * 1024, ge=1024)
    """Largest pickled result, and largest value that a generator may yield."""
    log_bytes: int = Field(default=8 << 20, ge=64 << 10)
    """How much of the end of what a call prints is kept, as long as its result."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not self.sandbox_memory_bytes:
            share = max(self.memory_bytes // self.slots, _LEAST_MEMORY_BYTES)
            object.__setattr__(self, "sandbox_memory_bytes", share)
        object.__setattr__(self, "run", self.run.absolute())
        return self
