"""The workers whose leases run, as Redis knows them: what they serve, hold and have done."""

from contextlib import suppress
from typing import Any, cast

from pydantic import BaseModel, ValidationError
from redis import Redis

from readie.protocol import keys
from readie.protocol.announcement import Announcement, WorkerCounts, decode_ready

from .readiness import redis_seconds


class WorkerOverview(BaseModel):
    """A worker whose lease runs."""

    name: str
    pid: int
    draining: bool = False
    """Whether it takes no more calls."""
    slots: int
    busy: int
    """Slots taken by calls, queued or running on it."""
    flavor: str
    python: str
    runsc_version: str
    generation: str | None
    catalogue: str | None = None
    """Digest of the catalogue it serves."""
    checkpoints: tuple[str, ...]
    memory_bytes: int | None = None
    """What its sandboxes may hold together."""
    reserved_bytes: int = 0
    """What its calls and sessions have reserved of that."""
    sessions: int = 0
    max_sessions: int = 0
    ready: dict[str, int] = {}
    """Sandboxes that wait for a call, by checkpoint; ``cold``: started without one."""
    avoided: tuple[str, ...] = ()
    """Checkpoints that routers do not choose here now, because a restore failed, or that the worker itself does not
    try."""
    counts: WorkerCounts | None = None
    """``None``: it does not tell."""


def workers_overview(connection: Redis) -> tuple[WorkerOverview, ...]:
    """Return all of them by name; one of a release that writes its entry otherwise is left out."""
    now = redis_seconds(connection)
    names = sorted(name.decode() for name in cast("list[bytes]", connection.zrangebyscore(keys.WORKERS, now, "+inf")))
    with connection.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.hmget(keys.worker(name), ["announcement", "ready", "counts"])
            pipe.zcard(keys.worker_calls(name))
            pipe.hget(keys.worker_memory(name), keys.TOTAL)
            pipe.scard(keys.worker_sessions(name))
            pipe.zrangebyscore(keys.worker_avoided(name), now, "+inf")
        replies = pipe.execute()
    found = []
    for first in range(0, len(replies), 5):
        with suppress(ValidationError):
            if (worker := _worker(*replies[first : first + 5])) is not None:
                found.append(worker)
    return tuple(found)


def _worker(
    entry: list[bytes | None], busy: int, reserved: bytes | None, sessions: int, avoided: list[bytes]
) -> WorkerOverview | None:
    announcement, ready, told = entry
    if announcement is None:
        return None
    worker = Announcement.model_validate_json(announcement)
    counts = _told(told)
    return WorkerOverview(
        **_same(worker),
        busy=busy,
        reserved_bytes=int(reserved or 0),
        sessions=sessions,
        ready=_ready(ready),
        avoided=tuple(sorted({*(name.decode() for name in avoided), *(counts.quarantined if counts else ())})),
        counts=counts,
    )


def _same(worker: Announcement) -> dict[str, Any]:
    """Return what an overview has as the worker announces it."""
    names = WorkerOverview.model_fields.keys() & Announcement.model_fields.keys()
    return {name: getattr(worker, name) for name in names}


def _ready(text: bytes | None) -> dict[str, int]:
    with suppress(ValueError):
        return {name or "cold": count for name, count in decode_ready(text or b"{}").items()}
    return {}


def _told(text: bytes | None) -> WorkerCounts | None:
    with suppress(ValidationError):
        return WorkerCounts.model_validate_json(text) if text else None
    return None
