"""What only routers do to the ledger: take messages, place and park many calls at once, hold a lease, recover."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

from redis.exceptions import NoScriptError, ReadOnlyError, RedisError, ResponseError
from redis.exceptions import OutOfMemoryError as RedisOutOfMemoryError

from readie.protocol import keys
from readie.protocol.call import CallHeader
from readie.protocol.envelope import CallState

from .ledger import Ledger, NoRoom, Placed, Settled

MOST_DEAD_LETTERS: Final = 1000
_NOT_ABOUT_THE_CALL: Final = (
    "MISCONF",
    "NOREPLICAS",
    "CLUSTERDOWN",
    "NOPERM",
    "NOAUTH",
    "MASTERDOWN",
    "TRYAGAIN",
    "BUSY",
)


class Broken(NamedTuple):
    """Redis refused what the ledger asked for this one call: its record is not one of ours."""

    reason: str


class Addressed(NamedTuple):
    """A call with its placement made, ready to be sent."""

    header: CallHeader
    message: str
    taken: bytes
    """The item on the router's taken list, ``b""`` when the call comes from the waiting ones."""


class Parking(NamedTuple):
    """A call that shall wait."""

    call_id: str
    taken: bytes
    waits_for: str


class Seen(NamedTuple):
    """A live worker: its announcement as JSON, and how many calls it holds."""

    announcement: bytes
    busy: int


class Look(NamedTuple):
    """The live workers at one moment."""

    capacity: str
    """Value of ``keys.CAPACITY`` at that moment."""
    workers: dict[bytes, Seen]


class Record(NamedTuple):
    """What a router wants to know of a call's record."""

    state: CallState | None
    """``None``: there is no record."""
    attempt: int
    incarnation: str
    worker: str
    submitted_at: float
    waits_for: str
    message: bytes
    """As the client sent it; empty once the call has ended, and when it was not asked for."""


class RoutingLedger(Ledger):
    """The ledger with the operations of routers."""

    def _run_all(self, script: str, runs: Sequence[tuple[Sequence[str], Sequence[Any]]]) -> list[Any]:
        # Script objects in a pipeline cost a round trip (SCRIPT EXISTS) before it; this costs one when Redis is new.
        registered = self._scripts[script]
        replies: list[Any] = []
        for _ in range(2):
            with self.redis.pipeline(transaction=False) as pipe:
                for script_keys, args in runs:
                    pipe.evalsha(registered.sha, len(script_keys), *script_keys, *args)
                replies = pipe.execute(raise_on_error=False)
            if not any(isinstance(reply, NoScriptError) for reply in replies):
                break
            self.redis.script_load(registered.script)
        for reply in replies:
            if isinstance(reply, Exception) and not _about_the_call(reply):
                raise reply
        return replies

    def await_item(self, router: str, timeout_seconds: float) -> bytes | None:
        """Take the next item of the submit queue, waiting for it if need be."""
        return cast(
            "bytes | None",
            # Redis takes fractions of seconds, redis-py's types don't say so.
            self.redis.blmove(
                keys.SUBMIT_QUEUE, keys.router_taken(router), cast("int", timeout_seconds), "RIGHT", "LEFT"
            ),
        )

    def take(self, router: str, most: int) -> list[bytes]:
        """Take up to ``most`` items of the submit queue, without waiting."""
        return cast("list[bytes]", self._run("take", [keys.SUBMIT_QUEUE, keys.router_taken(router)], [most]))

    def look(self) -> Look:
        """Return the live workers and the capacity counter, as of one moment."""
        capacity, *rest = self._run("fleet", [keys.CAPACITY, keys.WORKERS], [keys.worker(""), keys.worker_calls("")])
        workers = {
            name: Seen(announcement, busy)
            for name, announcement, busy in zip(rest[0::3], rest[1::3], rest[2::3], strict=True)
        }
        return Look(capacity.decode(), workers)

    def place_all(self, router: str, calls: Sequence[Addressed]) -> list[Placed | NoRoom | Settled | Broken]:
        """Do :meth:`place` for many calls in one round trip, in order."""
        runs = []
        for header, message, taken in calls:
            placement = header.placement
            assert placement is not None
            worker = placement.worker
            script_keys = [
                keys.call(header.id),
                keys.worker(worker),
                keys.worker_calls(worker),
                keys.worker_queue(worker),
                keys.WAITING,
                keys.router_taken(router),
            ]
            runs.append((script_keys, [header.id, placement.attempt, placement.incarnation, worker, message, taken]))
        return [_placed(reply) for reply in self._run_all("place", runs)]

    def park_all(self, router: str, capacity: str, calls: Sequence[Parking]) -> list[bool | Broken]:
        """Do :meth:`park` for many calls in one round trip, in order."""
        taken_list = keys.router_taken(router)
        replies = self._run_all(
            "park",
            [
                (
                    [keys.call(call.call_id), keys.WAITING, keys.CAPACITY, taken_list],
                    [call.call_id, capacity, call.taken, call.waits_for],
                )
                for call in calls
            ],
        )
        return [Broken(str(reply)) if isinstance(reply, Exception) else bool(reply) for reply in replies]

    def records(self, call_ids: Sequence[str], *, messages: bool = False) -> list[Record | Broken]:
        """Return what is known of these calls, with the messages they were submitted with or without."""
        fields = ["state", "attempt", "incarnation", "worker", "submitted_at", "waits_for", *(["message"] * messages)]
        with self.redis.pipeline(transaction=False) as pipe:
            for call_id in call_ids:
                pipe.hmget(keys.call(call_id), fields)
            replies = pipe.execute(raise_on_error=False)
        for reply in replies:
            if isinstance(reply, Exception) and not _about_the_call(reply):
                raise reply
        return [_record(reply) for reply in replies]

    def waiting(self, since: float, count: int) -> list[tuple[str, float]]:
        """Return up to ``count`` waiting calls with their place in the order, the first at ``since`` or after."""
        entries = self.redis.zrange(
            keys.WAITING, cast("int", since), cast("int", "+inf"), byscore=True, offset=0, num=count, withscores=True
        )
        return [(call_id.decode(), score) for call_id, score in cast("list[tuple[bytes, float]]", entries)]

    def drop_waiting(self, call_id: str) -> None:
        """Remove a call that can't be placed from the waiting ones."""
        self.redis.zrem(keys.WAITING, call_id)

    def settle(self, router: str, taken: bytes, count: int = 1) -> None:
        """Remove an item, taken ``count`` times, from the router's taken list: nothing is left to do for it."""
        self.redis.lrem(keys.router_taken(router), -count, cast("str", taken))

    def bury(self, router: str, taken: bytes, letter: str) -> None:
        """Move an item to the dead letters, of which the newest :data:`MOST_DEAD_LETTERS` are kept."""
        with self.redis.pipeline(transaction=True) as pipe:
            pipe.lpush(keys.DEAD_LETTERS, letter)
            pipe.ltrim(keys.DEAD_LETTERS, 0, MOST_DEAD_LETTERS - 1)
            pipe.lrem(keys.router_taken(router), -1, cast("str", taken))
            pipe.execute()

    def renew_router(self, router: str, lease_seconds: int) -> None:
        """Renew a router's lease."""
        self._run("renew_router", [keys.ROUTERS], [router, lease_seconds])

    def give_back(self, router: str, *, only_if_dead: bool) -> int | None:
        """Put a router's taken items back on the submit queue and end its lease; ``None``: it lives, and keeps them."""
        count = self._run(
            "give_back",
            [keys.ROUTERS, keys.router_taken(router), keys.SUBMIT_QUEUE],
            [router, "1" if only_if_dead else "0"],
        )
        return cast("int | None", count)

    def dead_routers(self) -> list[str]:
        """Return the routers whose lease has ended."""
        now = self.now()
        return [item.decode() for item in cast("list[bytes]", self.redis.zrangebyscore(keys.ROUTERS, "-inf", now))]

    def incarnations(self, workers: Sequence[str] | None = None) -> dict[str, str | None]:
        """Return the living incarnation of each of these workers, or of all; ``None`` for one whose lease has ended."""
        if workers is None:
            workers = [item.decode() for item in cast("list[bytes]", self.redis.zrange(keys.WORKERS, 0, -1))]
        with self.redis.pipeline(transaction=False) as pipe:
            for worker in workers:
                pipe.hget(keys.worker(worker), "incarnation")
            replies = pipe.execute()
        return {worker: reply.decode() if reply else None for worker, reply in zip(workers, replies, strict=True)}

    def held_since(self, workers: Sequence[str], before: float) -> dict[str, list[str]]:
        """Return the calls that each worker was given before a time (Redis clock, seconds) and still holds."""
        with self.redis.pipeline(transaction=False) as pipe:
            for worker in workers:
                pipe.zrangebyscore(keys.worker_calls(worker), "-inf", before)
            replies = pipe.execute()
        return {worker: [item.decode() for item in reply] for worker, reply in zip(workers, replies, strict=True)}

    def readmit(self, since: str, lost_after_seconds: int, most: int) -> tuple[str, list[str]]:
        """Send messages of queued calls again that are nowhere.

        Args:
            since: where to begin, ``"0"`` or what the last look returned.
            lost_after_seconds: how long a message may be under way.
            most: calls to look at.

        Returns:
            Where to begin next time, and the calls whose message was sent.
        """
        following, *call_ids = self._run(
            "readmit",
            [keys.PENDING, keys.WAITING, keys.SUBMIT_QUEUE],
            [since, lost_after_seconds, most, keys.call("")],
        )
        return following.decode(), [call_id.decode() for call_id in call_ids]

    def drop_held(self, worker: str, call_id: str) -> None:
        """Free the slot of a call whose record is not one of ours."""
        self.redis.zrem(keys.worker_calls(worker), call_id)

    def now(self) -> float:
        """Return Redis' time, seconds since the epoch."""
        seconds, microseconds = self.redis.time()
        return seconds + microseconds / 1e6

    def forget_worker(self, name: str) -> bool:
        """Remove a worker that is gone, with its queue; ``False``: it came back, or calls of it are left."""
        return bool(
            self._run(
                "forget", [keys.worker(name), keys.WORKERS, keys.worker_calls(name), keys.worker_queue(name)], [name]
            )
        )


def _about_the_call(error: Exception) -> bool:
    if not isinstance(error, ResponseError) or isinstance(error, (ReadOnlyError, RedisOutOfMemoryError, NoScriptError)):
        return False
    return not str(error).startswith(_NOT_ABOUT_THE_CALL)


def _placed(reply: Any) -> Placed | NoRoom | Settled | Broken:
    if isinstance(reply, RedisError):
        return Broken(str(reply))
    match reply:
        case [b"placed", bytes(at)]:
            return Placed(float(at))
        case [b"moved", int(attempt)]:
            return Settled(attempt if attempt >= 0 else None)
        case [b"full"]:
            return NoRoom("full")
        case [b"gone"]:
            return NoRoom("gone")
    return Broken("the record has no attempt number")


def _record(reply: Any) -> Record | Broken:
    if isinstance(reply, RedisError):
        return Broken(str(reply))
    state, attempt, incarnation, worker, submitted_at, waits_for, *message = (field or b"" for field in reply)
    try:
        return Record(
            CallState(state.decode()) if state else None,
            int(attempt or 0),
            incarnation.decode(),
            worker.decode(),
            float(submitted_at or 0.0),
            waits_for.decode(),
            message[0] if message else b"",
        )
    except ValueError as error:
        return Broken(str(error))
