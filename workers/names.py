"""Names for workers that are started alike, as the replicas of a container are."""

import itertools
from contextlib import suppress
from pathlib import Path

from .sandbox.run_folder import own


def claim_name(run: Path, prefix: str) -> str:
    """Return the first of ``prefix1``, ``prefix2``, ... that no other process has; it is this one's until it ends.

    So the names of replicas are few and come again, and with them their queues and their pages in Flower.

    Args:
        run: folder that all of them share, over containers too.
        prefix: what the names have in common.
    """
    for number in itertools.count(1):
        # RuntimeError: another process owns it.
        with suppress(RuntimeError):
            own(run / "names" / f"{prefix}{number}")
            break
    return f"{prefix}{number}"
