"""Settings of the router, read from ``READIE_*`` environment variables."""

from pydantic import Field

from readie.ledger.recovery import LONGEST_LEASE_SECONDS
from readie.settings import ResultSettings


class RouterSettings(ResultSettings):
    """What a router can be told."""

    router_lease_seconds: int = Field(default=6, ge=2, le=LONGEST_LEASE_SECONDS)
    """After how long without a sign of life another router takes over what this one has in hand."""
    fleet_max_age_seconds: float = Field(default=0.05, ge=0)
    """How old the picture of the workers' load may be when one is chosen; the reservation itself is always exact."""
    max_queued: int = Field(default=100_000, ge=0)
    """How many calls may wait for a worker; what is submitted beyond that fails."""
    max_queued_per_client: int = Field(default=50_000, ge=0)
    """How many calls of one client may wait, so that no client takes the whole queue."""
