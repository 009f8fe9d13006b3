"""Counting sets of imports in Redis, bounded in number and fading with time."""

import contextlib
import json
from collections import Counter, defaultdict
from importlib.resources import files
from typing import Any, Final, cast

from redis import Redis
from redis.exceptions import OutOfMemoryError

from readie.protocol import keys
from readie.protocol.call import ImportHints

KEPT_PER_DAY: Final = 0.9
"""What a day leaves of a count: half of it after six and a half days."""
FORGOTTEN_BELOW: Final = 0.05
MOST_SETS: Final = 2000
UNUSED_SECONDS: Final = 60 * 24 * 3600

_MOST_BYTES: Final = 4096
"""A set with longer names together is not counted: no plan could do anything for it."""
_MOST_HELD: Final = 5000


class TrafficCounter:
    """Counts in memory, and adds that to the counts in Redis when told to. For one thread.

    Args:
        redis: a connection (pool) with ``decode_responses=False``.
    """

    def __init__(self, redis: "Redis") -> None:
        self._script = redis.register_script((files(__package__) / "count.lua").read_text())
        self._held: dict[str, Counter[str]] = defaultdict(Counter)

    def count(self, flavor: str, hints: ImportHints) -> None:
        """Count one call."""
        member = json.dumps(sorted(set(hints.imports)), separators=(",", ":"))
        held = self._held[flavor]
        if len(member) <= _MOST_BYTES and (member in held or len(held) < _MOST_HELD):
            held[member] += 1

    def flush(self) -> None:
        """Add what was counted since the last time. ``RedisError`` when that fails; it is then kept for the next.

        A Redis that is out of memory has more important things to keep.
        """
        with contextlib.suppress(OutOfMemoryError):
            self._flush()

    def _flush(self) -> None:
        for flavor in list(self._held):
            pairs = [part for item in self._held[flavor].items() for part in item]
            settings: list[Any] = [KEPT_PER_DAY, FORGOTTEN_BELOW, MOST_SETS, UNUSED_SECONDS]
            self._script(keys=[keys.traffic(flavor), keys.traffic_day(flavor)], args=[*settings, *pairs])
            del self._held[flavor]


def read_traffic(redis: "Redis", flavor: str) -> dict[tuple[str, ...], float]:
    """Return the sets of imports that calls of ``flavor`` needed, and how often of late."""
    found = cast("list[tuple[bytes, float]]", redis.zrange(keys.traffic(flavor), 0, -1, withscores=True))
    return {tuple(json.loads(member)): count for member, count in found}
