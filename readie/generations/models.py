"""The files of a generation."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from readie.protocol.call import Message


class Manifest(Message):
    """What holds for every checkpoint of a generation."""

    version: Literal[1] = 1
    generation: str
    flavor: str
    created_at: datetime
    runsc_version: str
    fingerprint: str
    """SHA-256 of the sandbox shape, hexadecimal."""
    command: tuple[str, ...]
    """What the sandbox runs."""
    wire_version: int
    """Version of the protocol between worker and executor."""
    python_path: str
    """Python inside the sandbox."""
    python: str
    """``major.minor`` of that Python."""
    overlay: str
    network: str
    gpu: str
    platform: str
    """runsc's platform at capture."""
    filesystem_digest: str
    cpu_features: tuple[str, ...]
    """Features that the captured processes saw, as named in ``/proc/cpuinfo``."""
    checkpoints: tuple[str, ...]
    inputs_digest: str
    """SHA-256 over all that this generation was made from: the same inputs need no other generation."""


class ImageFile(Message):
    """One file of a saved sandbox."""

    size_bytes: int = Field(ge=0)
    sha256: str


class CheckpointMeta(Message):
    """What one checkpoint is and holds."""

    checkpoint_id: str
    runsc_version: str
    fingerprint: str
    filesystem_digest: str
    imports: tuple[str, ...]
    datasets: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    tokenizers: tuple[str, ...] = ()
    files: dict[str, ImageFile]
    """gVisor's image files beside this one."""


class ExpectedStart(Message):
    """Mean predicted start over a corpus, in seconds."""

    cold_seconds: float
    """Without any checkpoint."""
    empty_seconds: float
    """With the empty checkpoint alone."""
    planned_seconds: float
    """With all checkpoints, each call by its best way."""


class PlanRecord(Message):
    """How the checkpoints of a generation came about."""

    corpus: str | None
    """Where the import sets come from that it was planned for; ``None`` when the flavor fixes its checkpoints."""
    import_sets: int = 0
    expected: ExpectedStart | None = None
    """Over that corpus."""
    unimportable: dict[str, str] = Field(default_factory=dict)
    """Modules of the flavor that can't be imported in a sandbox, each with the reason."""
    unfit: dict[str, str] = Field(default_factory=dict)
    """Modules that no image may hold, each with what it leaves running or open."""
    notes: tuple[str, ...] = ()
    """Planned sets that were split or dropped, and why."""
