"""What an executor tells of the imports for a snapshot."""

from __future__ import annotations

from pydantic import BaseModel


class ModuleImport(BaseModel):
    """What importing one module took after those before it; MB are 10**6 bytes of anonymous memory."""

    name: str
    seconds: float
    anonymous_mb: float


class ImportReport(BaseModel):
    """What an executor says after the imports for a snapshot, see ``workers.executor.imports``."""

    imported: list[str]
    failed: dict[str, str]
    modules: list[ModuleImport]
    loaded: list[str]
    anonymous_mb: float
    threads: int
    sockets: int
