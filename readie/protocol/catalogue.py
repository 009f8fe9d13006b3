"""The router's summary of a generation, written next to the checkpoints as ``catalogue.json``."""

import hashlib
from typing import Final, Literal

from pydantic import Field

from .call import Message

CATALOGUE_VERSION: Final = 1


class Module(Message):
    """One importable module as measured in a sandbox, with what never comes without it."""

    import_seconds: float = Field(ge=0)
    """Time of the import alone, its dependencies being present."""
    megabytes: float = Field(ge=0)
    """Anonymous memory the import adds, dependencies being present (10^6 bytes)."""
    dependencies: tuple[str, ...] = ()
    """Catalogued modules that this import brings in. Those that one of them brings in need not be listed."""


class Checkpoint(Message):
    """One restorable image."""

    id: str
    imported: tuple[str, ...]
    """What the executor was told to import."""
    holds: tuple[str, ...]
    """Catalogued modules present in the image: the closure of ``imported``."""
    megabytes: float = Field(ge=0)
    """Anonymous memory of the saved process (10^6 bytes)."""
    restore_seconds: float = Field(ge=0)
    """Measured median from ``runsc restore`` to the connected executor."""
    residual_seconds: float = 0.0
    """``restore_seconds`` less what the fitted cost predicts for this size."""


class Cost(Message):
    """Parameters of the cost model, fitted at capture. See ``docs/routing.md`` for the formula."""

    restore_base_seconds: float = Field(ge=0)
    restore_seconds_per_megabyte: float = Field(ge=0)
    cold_base_seconds: float = Field(ge=0)


class Catalogue(Message):
    """What a router needs to know of a generation to score its checkpoints."""

    version: Literal[1] = CATALOGUE_VERSION
    generation: str
    flavor: str
    python: str
    """``major.minor`` of the flavor's Python."""
    filesystem_digest: str
    cost: Cost
    modules: dict[str, Module]
    checkpoints: tuple[Checkpoint, ...]

    def digest(self) -> str:
        """SHA-256 of the content, hexadecimal: the name under which a worker publishes it."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()
