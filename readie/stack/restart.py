"""When a part of the stack that ended is started again."""

from dataclasses import dataclass
from typing import Final

CANNOT_START: Final = 78
"""Exit status (``EX_CONFIG``) of a process that can't work on this machine: another try changes nothing."""
STABLE_SECONDS: Final = 10.0
"""A part that worked this long starts with a clean slate."""
MOST_QUICK_ENDS: Final = 4
FIRST_DELAY_SECONDS: Final = 0.2
LONGEST_DELAY_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Restart:
    """Start it again after a delay."""

    delay_seconds: float
    quick_ends: int
    """Ends in a row that came too soon, this one included."""


def after_end(exit_code: int, *, ready_seconds: float | None, quick_ends: int, has_redis: bool) -> Restart | None:
    """Decide about a part that ended. ``None``: give it up.

    Args:
        exit_code: of the process; negative for a signal.
        ready_seconds: how long it worked; ``None`` when it never did.
        quick_ends: as the last decision returned it, 0 at first.
        has_redis: whether the part had a Redis; without one its end says nothing about itself.
    """
    if exit_code == CANNOT_START:
        return None
    if not has_redis:
        return Restart(FIRST_DELAY_SECONDS, quick_ends)
    count = 1 if ready_seconds is not None and ready_seconds >= STABLE_SECONDS else quick_ends + 1
    if ready_seconds is None and count >= MOST_QUICK_ENDS:
        return None
    return Restart(min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2 ** (count - 1)), count)
