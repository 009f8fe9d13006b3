"""What a worker tells of itself with its lease: how many sandboxes it has, and what became of its calls."""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from readie.protocol.announcement import SandboxState, WorkerCounts
from readie.protocol.envelope import CallState, Envelope, Start

from .inspection import Inspection
from .serving import Serving

_RATE_SECONDS: Final = 10


class Tally:
    """Counts the ends of calls since the process began. All state is guarded by ``_lock``."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._starts: Counter[Start] = Counter()
        self._ended: Counter[CallState] = Counter()
        self._seconds: deque[tuple[int, int]] = deque(maxlen=_RATE_SECONDS + 1)
        """Ends in each of the last seconds that had some."""

    def ended(self, envelope: Envelope) -> None:
        """Count an end."""
        second = int(self._clock())
        with self._lock:
            self._ended[envelope.state] += 1
            if envelope.report.start is not None:
                self._starts[envelope.report.start] += 1
            before = self._seconds.pop()[1] if self._seconds and self._seconds[-1][0] == second else 0
            self._seconds.append((second, before + 1))

    def read(self) -> tuple[dict[Start, int], dict[CallState, int], float]:
        """Return the starts, the ends, and the ends per second of the last ten."""
        since = int(self._clock()) - _RATE_SECONDS
        with self._lock:
            # The second that is not over yet is left out.
            recent = sum(count for second, count in self._seconds if since <= second < since + _RATE_SECONDS)
            return dict(self._starts), dict(self._ended), recent / _RATE_SECONDS


def counts(inspection: Inspection, serving: Serving, tally: Tally) -> WorkerCounts:
    """Return what there is now."""
    sandboxes: dict[SandboxState, int] = {"busy": 0, "idle": 0, "ready": 0, "created": 0}
    for sandbox in inspection.sandboxes():
        sandboxes[sandbox["state"]] += 1
    starts, ended, per_second = tally.read()
    pools = inspection.pools()
    return WorkerCounts(
        sandboxes=sandboxes,
        ready_bytes=pools["ready_bytes"],
        ready_bytes_limit=pools["ready_bytes_limit"],
        quarantined=tuple(serving.supply.quarantined),
        starts=starts,
        ended=ended,
        calls_per_second=per_second,
    )
