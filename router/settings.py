"""Settings of the router, read from ``READIE_*`` environment variables."""

from pathlib import Path

from pydantic import Field

from readie.settings import Settings


class RouterSettings(Settings):
    """What a router can be told."""

    result_seconds: int = Field(default=3600, ge=1)
    """How long the result of a call that no worker ran stays."""
    router_lease_seconds: int = Field(default=6, ge=2)
    """After how long without a sign of life another router takes over what this one has in hand."""
    heartbeat_file: Path | None = None
    """A file that is touched every second while the router takes calls, for health checks. Default: none."""
    fleet_max_age_seconds: float = Field(default=0.05, ge=0)
    """How old the picture of the workers' load may be when one is chosen; the reservation itself is always exact."""
    max_queued: int = Field(default=100_000, ge=0)
    """How many calls may wait for a worker; what is submitted beyond that fails."""
    log_level: str = Field(default="INFO", pattern=r"^(DEBUG|INFO|WARNING|ERROR)$")
    """The least severe lines that are logged."""
