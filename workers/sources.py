"""What the sandboxes of a generation can be started from, and what that is worth to a call."""

from collections.abc import Mapping
from typing import Final

from .checkpoints import Served
from .sandbox.wanted import Source

_SANDBOX_BYTES: Final = 40 << 20
"""About what a sandbox holds whose Python has imported nothing; of more, what was imported says the rest."""
_COLD_SECONDS: Final = 0.5
"""What starting Python takes where no generation has measured it."""


def sources(served: Served) -> dict[str | None, Source]:
    """Return the sources by checkpoint; ``None`` is the cold start."""
    catalogue = served.catalogue
    cold_seconds = catalogue.cost.cold_base_seconds if catalogue else _COLD_SECONDS
    found: dict[str | None, Source] = {None: Source(None, cold_seconds, _SANDBOX_BYTES)}
    for checkpoint in catalogue.checkpoints if catalogue else ():
        size = _SANDBOX_BYTES + round(checkpoint.megabytes * 1e6)
        found[checkpoint.id] = Source(served.images[checkpoint.id], checkpoint.restore_seconds, size)
    return found


def new_ids(former: Served, served: Served) -> Mapping[str, str]:
    """Return the id that each checkpoint of ``former`` has in ``served``: that of the one with the same imports."""
    if former.catalogue is None or served.catalogue is None:
        return {}
    ids = {frozenset(checkpoint.imported): checkpoint.id for checkpoint in served.catalogue.checkpoints}
    return {
        checkpoint.id: ids[imported]
        for checkpoint in former.catalogue.checkpoints
        if (imported := frozenset(checkpoint.imported)) in ids
    }
