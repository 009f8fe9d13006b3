"""What runs: the local stack's own file and processes, and what Redis knows of routers, workers and calls."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel
from redis import Redis
from redis.exceptions import NoPermissionError, RedisError

from readie.connection import connect, without_password
from readie.protocol import keys

from .fleet import WorkerOverview, workers_overview
from .processes import is_alive
from .readiness import live_routers, redis_seconds
from .state import Role, StackState, read_state

_TIMEOUT_SECONDS = 3.0

State = Literal["running", "starting", "degraded", "stopped"]


class RedisOverview(BaseModel):
    """The Redis behind the cluster."""

    url: str
    """Without its password."""
    error: str | None = None
    """Why it does not answer; then the rest of the overview is empty."""
    version: str | None = None
    used_memory_bytes: int | None = None


class RouterOverview(BaseModel):
    """A router whose lease runs."""

    id: str
    lease_seconds: float
    """Until its lease ends, unless it is renewed."""


class CallsOverview(BaseModel):
    """Numbers of calls that have not ended, and of what is kept besides."""

    pending: int
    """All of them."""
    waiting: int
    """Those that no worker can take now."""
    submitted: int
    """Messages that no router has taken yet."""
    delayed: int
    """Those that are to run again later."""
    sessions: int
    """Sessions that have not ended."""
    dead_letters: int | None
    """Messages that could not be read; ``None``: this user of Redis may not look at them."""
    stale: int
    """Messages and ends of attempts that had moved on, which were dropped, since Redis was empty."""
    forged: int
    """Messages and payloads that were refused, because they were not signed as they must be."""


class PartOverview(BaseModel):
    """A process of the local stack."""

    name: str
    role: Role
    pid: int | None
    running: bool
    restarts: int
    failure: str | None


class StackOverview(BaseModel):
    """The stack that was started in the home."""

    version: str
    phase: str
    supervisor_pid: int
    supervisor_running: bool
    parts: tuple[PartOverview, ...]


class Overview(BaseModel):
    """All of it."""

    state: State
    home: Path
    stack: StackOverview | None
    """``None``: no stack was started in this home; Redis may still be another machine's."""
    redis: RedisOverview
    routers: tuple[RouterOverview, ...] = ()
    workers: tuple[WorkerOverview, ...] = ()
    calls: CallsOverview | None = None


def look(home: Path, redis_url: str, *, redis_configured: bool) -> Overview:
    """Return what runs now. A Redis that does not answer within seconds is part of the answer, not an error.

    Args:
        home: folder of the local stack, if there is one.
        redis_url: where to look.
        redis_configured: somebody has named that Redis, so its absence is a fault.

    Raises:
        StackError: the home's ``stack.json`` is damaged.
    """
    state = read_state(home)
    stack = _stack_overview(state) if state is not None else None
    redis = RedisOverview(url=without_password(redis_url))
    routers: tuple[RouterOverview, ...] = ()
    workers: tuple[WorkerOverview, ...] = ()
    calls: CallsOverview | None = None
    with connect(redis_url, name="readie-status", timeout_seconds=_TIMEOUT_SECONDS, retries=0) as connection:
        try:
            redis = _redis_overview(connection, redis.url)
            now = redis_seconds(connection)
            ends = live_routers(connection)
            routers = tuple(RouterOverview(id=id_, lease_seconds=round(end - now, 3)) for id_, end in ends.items())
            workers = workers_overview(connection)
            calls = _calls_overview(connection)
        except RedisError as error:
            redis = RedisOverview(url=redis.url, error=str(error) or type(error).__name__)
            routers, workers = (), ()
    return Overview(
        state=judge(stack, redis, routers, workers, redis_configured=redis_configured),
        home=home,
        stack=stack,
        redis=redis,
        routers=routers,
        workers=workers,
        calls=calls,
    )


def judge(
    stack: StackOverview | None,
    redis: RedisOverview,
    routers: Sequence[RouterOverview],
    workers: Sequence[WorkerOverview],
    *,
    redis_configured: bool,
) -> State:
    """Say in a word how a cluster is.

    A local stack runs when all it was started with runs; another cluster when it has a router and a worker.
    """
    serves = redis.error is None and bool(routers)
    if stack is None:
        if serves and workers:
            return "running"
        missing = redis.error is not None and redis_configured
        return "degraded" if routers or workers or missing else "stopped"
    if not stack.supervisor_running and not any(part.running for part in stack.parts):
        return "stopped"
    if stack.supervisor_running and stack.phase == "starting":
        return "starting"
    wanted = sum(1 for part in stack.parts if part.role == "worker")
    whole = stack.supervisor_running and all(part.running for part in stack.parts) and len(workers) >= wanted
    return "running" if serves and whole else "degraded"


def _stack_overview(state: StackState) -> StackOverview:
    return StackOverview(
        version=state.readie,
        phase=state.phase,
        supervisor_pid=state.supervisor.pid,
        supervisor_running=is_alive(state.supervisor),
        parts=tuple(
            PartOverview(
                name=name,
                role=part.role,
                pid=part.process.pid if part.process else None,
                running=part.process is not None and is_alive(part.process),
                restarts=part.restarts,
                failure=part.failure,
            )
            for name, part in state.parts.items()
        ),
    )


def _redis_overview(connection: Redis, url: str) -> RedisOverview:
    info = connection.info("server") | connection.info("memory")
    return RedisOverview(url=url, version=info["redis_version"], used_memory_bytes=info["used_memory"])


def _calls_overview(connection: Redis) -> CallsOverview:
    with connection.pipeline(transaction=False) as pipe:
        pipe.zcard(keys.PENDING)
        pipe.zcard(keys.WAITING)
        pipe.llen(keys.SUBMIT_QUEUE)
        pipe.zcard(keys.DELAYED)
        pipe.zcard(keys.SESSIONS)
        pipe.get(keys.STALE)
        pipe.get(keys.FORGED)
        pending, waiting, submitted, delayed, sessions, stale, forged = pipe.execute()
    try:
        dead_letters = connection.llen(keys.DEAD_LETTERS)
    except NoPermissionError:
        dead_letters = None
    return CallsOverview(
        pending=pending,
        waiting=waiting,
        submitted=submitted,
        delayed=delayed,
        sessions=sessions,
        dead_letters=dead_letters,
        stale=int(stale or 0),
        forged=int(forged or 0),
    )
