"""What ``readie top`` shows: everything of the overview, and what the workers have and do together."""

import time
from collections import Counter

from pydantic import BaseModel

from .fleet import WorkerOverview
from .overview import CallsOverview, Overview, RedisOverview, RouterOverview, State


class Activity(BaseModel):
    """A cluster at one moment."""

    at: float
    """Seconds since the epoch."""
    state: State
    redis: RedisOverview
    routers: tuple[RouterOverview, ...]
    calls: CallsOverview | None
    slots: int
    busy: int
    sandboxes: dict[str, int]
    """By state: busy, idle, ready, created."""
    starts: dict[str, int]
    """Calls by how they got their sandbox: warm, restored, cold; since each worker began."""
    ended: dict[str, int]
    """Calls by their end, likewise."""
    calls_per_second: float
    """Ends of the last ten seconds."""
    workers: tuple[WorkerOverview, ...]


def activity(overview: Overview) -> Activity:
    """Add the workers up."""
    sandboxes = Counter({"busy": 0, "idle": 0, "ready": 0, "created": 0})
    starts = Counter({"warm": 0, "restored": 0, "cold": 0})
    ended = Counter({"done": 0, "failed": 0, "cancelled": 0})
    told = [worker.counts for worker in overview.workers if worker.counts is not None]
    for counts in told:
        sandboxes.update(counts.sandboxes)
        starts.update(counts.starts)
        ended.update({state.value: count for state, count in counts.ended.items()})
    return Activity(
        at=time.time(),
        state=overview.state,
        redis=overview.redis,
        routers=overview.routers,
        calls=overview.calls,
        slots=sum(worker.slots for worker in overview.workers if not worker.draining),
        busy=sum(worker.busy for worker in overview.workers),
        sandboxes=dict(sandboxes),
        starts=dict(starts),
        ended=dict(ended),
        calls_per_second=round(sum(counts.calls_per_second for counts in told), 3),
        workers=overview.workers,
    )
