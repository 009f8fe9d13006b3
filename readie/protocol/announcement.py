"""What a worker says of itself in Redis."""

from pydantic import Field

from .call import Message


class Announcement(Message):
    """A worker's entry, renewed with its lease."""

    name: str
    """Celery node name: ``worker@host``."""
    incarnation: str
    """Changes with every process start."""
    pid: int
    slots: int = Field(ge=1)
    draining: bool = False
    """Finishes what it has and takes nothing new."""
    flavor: str
    python: str
    """``major.minor`` inside its sandboxes."""
    runsc_version: str
    generation: str | None
    """``None``: no usable generation, cold starts only."""
    catalogue: str | None
    """Digest of the catalogue it serves."""
    checkpoints: tuple[str, ...] = ()
