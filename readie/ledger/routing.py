"""What only routers do to the ledger: take messages, place and park many calls at once."""

import time
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, cast

from redis.exceptions import NoScriptError, OutOfMemoryError, RedisError

from readie.protocol import keys
from readie.protocol.call import CallHeader
from readie.protocol.envelope import CallState
from readie.protocol.explain import ANSWER_SECONDS

from .ledger import NoRoom, Placed, Settled
from .recovery import RecoveryLedger
from .refusals import about_the_call

_OUT_OF_MEMORY_PAUSE_SECONDS: Final = 0.1


class Broken(NamedTuple):
    """Redis refused what the ledger asked for this one call: its record is not one of ours."""

    reason: str


class Addressed(NamedTuple):
    """A call with its placement made, ready to be sent."""

    header: CallHeader
    message: str
    taken: bytes
    """The item on the router's taken list, ``b""`` when the call comes from the waiting ones."""
    item: bytes = b""
    """The item that the call was read from: what the call's record has not is not the call's. Empty: not known."""


class Parking(NamedTuple):
    """A call that shall wait."""

    call_id: str
    taken: bytes
    group: str
    """Calls of one group need the same of a worker."""
    priority: int
    waits_for: str
    client: str = ""
    item: bytes = b""
    """See :attr:`Addressed.item`."""


class Parked(IntEnum):
    """What became of a call that shall wait."""

    WAITS = 1
    """It waits, or is past that."""
    QUEUE_FULL = 0
    """As many calls wait as may; its item is not settled."""
    CLIENT_FULL = -1
    """As many calls of its client wait as may; its item is not settled."""


class Waiting(NamedTuple):
    """A call that waits. Lower orders run first."""

    order: float
    call_id: str
    group: str


class Seen(NamedTuple):
    """A live worker."""

    announcement: bytes
    """JSON."""
    busy: int
    """Calls it holds."""
    reserved_bytes: int
    """Memory that these reserve."""
    ready: bytes
    """Sandboxes that wait for a call by checkpoint, as JSON."""
    avoided: list[bytes]
    """Checkpoints that it failed to restore."""
    sessions: int
    """Sessions that it keeps or is to open. Those that end when a call needs their room are left out, as their memory
    is."""


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
    expires_at: float | None
    """Time it must begin before; ``None`` without limit, and once it has begun."""
    begun: int
    """How often a worker has begun it."""
    group: str
    """What it is among the waiting calls of; empty when it does not wait."""
    message: bytes
    """As the client sent it; empty once the call has ended, and when it was not asked for."""


class RoutingLedger(RecoveryLedger):
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
            if isinstance(reply, Exception) and not about_the_call(reply):
                raise reply
        return replies

    def await_item(self, router: str, timeout_seconds: float) -> bytes | None:
        """Take the next item of the submit queue, waiting for it if need be."""
        try:
            return cast(
                "bytes | None",
                # Redis takes fractions of seconds, redis-py's types don't say so.
                self.redis.blmove(
                    keys.SUBMIT_QUEUE, keys.router_taken(router), cast("int", timeout_seconds), "RIGHT", "LEFT"
                ),
            )
        except OutOfMemoryError:
            # Only what moves on gives Redis memory back, and the script may move it.
            items = self.take(router, 1)
            if items:
                return items[0]
            time.sleep(min(timeout_seconds, _OUT_OF_MEMORY_PAUSE_SECONDS))
            return None

    def take(self, router: str, most: int) -> list[bytes]:
        """Take up to ``most`` items of the submit queue, without waiting."""
        return cast("list[bytes]", self._run("take", [keys.SUBMIT_QUEUE, keys.router_taken(router)], [most]))

    def look(self) -> Look:
        """Return the live workers and the capacity counter, as of one moment."""
        capacity, *workers = self._run(
            "fleet", [keys.CAPACITY, keys.WORKERS], [keys.worker(""), keys.worker_avoided("")]
        )
        return Look(
            capacity.decode(),
            {
                name: Seen(announcement, busy, int(reserved), ready, avoided, sessions)
                for name, announcement, busy, reserved, ready, avoided, sessions in workers
            },
        )

    def place_all(self, router: str, calls: Sequence[Addressed]) -> list[Placed | NoRoom | Settled | Broken]:
        """Reserve a slot and memory of each call's worker and send its message there, many in one round trip, in order.

        Args:
            router: id of the router whose taken list holds the items.
            calls: with the placement to make in each header.
        """
        runs = []
        for header, message, taken, item in calls:
            placement = header.placement
            assert placement is not None
            worker = placement.worker
            memory = header.options.memory_bytes
            script_keys = [
                keys.call(header.id),
                keys.worker(worker),
                keys.worker_calls(worker),
                keys.worker_memory(worker),
                keys.worker_queue(worker),
                keys.router_taken(router),
            ]
            session = header.session.id if header.session else ""
            args = [header.id, placement.attempt, placement.incarnation, worker, message, taken, memory or "", session]
            args += [placement.model_dump_json(include={"checkpoint_id", "reason", "predicted_seconds"}), item]
            runs.append((script_keys, args))
        return [_placed(reply) for reply in self._run_all("place", runs)]

    def park_all(
        self, router: str, capacity: str, most: int, calls: Sequence[Parking], most_per_client: int = 2**53
    ) -> list[Parked | Broken]:
        """Let calls wait, many in one round trip.

        Args:
            router: id of the router whose taken list holds the items.
            capacity: as it was when no worker was found. If it has changed since, the waiting calls are looked at anew.
            most: how many calls may wait.
            most_per_client: how many calls of one client may wait.
        """
        runs = []
        for call in calls:
            args = [call.call_id, capacity, call.taken, call.waits_for, call.group, call.priority]
            args += [most, call.client, most_per_client, call.item]
            runs.append(([keys.call(call.call_id), keys.router_taken(router)], args))
        replies = self._run_all("park", runs)
        return [Broken(str(reply)) if isinstance(reply, Exception) else Parked(reply) for reply in replies]

    def records(self, call_ids: Sequence[str], *, messages: bool = False) -> list[Record | Broken]:
        """Return what is known of these calls, with the messages they were submitted with or without."""
        fields = ["state", "attempt", "incarnation", "worker", "submitted_at", "expires_at", "begun", "group"]
        with self.redis.pipeline(transaction=False) as pipe:
            for call_id in call_ids:
                pipe.hmget(keys.call(call_id), fields)
            for call_id in call_ids if messages else ():
                pipe.hget(keys.message(call_id), "submitted")
            replies = pipe.execute(raise_on_error=False)
        for reply in replies:
            if isinstance(reply, Exception) and not about_the_call(reply):
                raise reply
        read, sent = replies[: len(call_ids)], replies[len(call_ids) :] or [b""] * len(call_ids)
        return [_record(reply, message) for reply, message in zip(read, sent, strict=True)]

    def waiting_groups(self) -> dict[str, str]:
        """Return the groups of waiting calls, and why each waits."""
        groups = cast("dict[bytes, bytes]", self.redis.hgetall(keys.WAITING_GROUPS))
        return {group.decode(): why.decode() for group, why in groups.items()}

    def waiting(self, groups: Sequence[str], most: int) -> list[Waiting]:
        """Return the first calls, ``most`` at the most, of these groups together."""
        with self.redis.pipeline(transaction=False) as pipe:
            for group in groups:
                pipe.zrange(keys.waiting_group(group), 0, most - 1, withscores=True)
            replies = pipe.execute()
        found = [
            Waiting(order, call_id.decode(), group)
            for group, reply in zip(groups, replies, strict=True)
            for call_id, order in reply
        ]
        return sorted(found)[:most]

    def explain_waiting(self, groups: Mapping[str, str]) -> None:
        """Say anew why the calls of some groups wait."""
        self._run("explain_waiting", [keys.WAITING_GROUPS], [text for item in groups.items() for text in item])

    def drop_waiting(self, call_id: str, group: str) -> None:
        """Remove a call that can't be placed from the waiting ones."""
        self._run("drop_waiting", [], [call_id, group])

    def ask_for_wake(self) -> None:
        """Have a router look at the waiting calls after what it has in hand."""
        self.redis.rpush(keys.SUBMIT_QUEUE, keys.WAKE)

    def release_delayed(self, most: int) -> float | None:
        """Queue the calls whose time to run again has come; returns the seconds until the next, ``None`` without."""
        left = self._run("release_delayed", [keys.DELAYED, keys.SUBMIT_QUEUE], [most])
        return float(left) if left else None

    def expiring(self, most: int) -> list[tuple[str, float]]:
        """Return the calls that must begin soonest, and the seconds each has left by now."""
        now = self.now()
        entries = cast("list[tuple[bytes, float]]", self.redis.zrange(keys.EXPIRIES, 0, most - 1, withscores=True))
        return [(call_id.decode(), at - now) for call_id, at in entries]

    def put_expiry(self, call_id: str, at: float | None) -> None:
        """Say what is true of when a call must begin before; ``None``: it may begin at any time."""
        if at is None:
            self.drop_expiry(call_id)
        else:
            self.redis.zadd(keys.EXPIRIES, {call_id: at}, xx=True)

    def drop_expiry(self, call_id: str) -> None:
        """Forget that a call must begin before a time."""
        self.redis.zrem(keys.EXPIRIES, call_id)

    def settle(self, router: str, taken: bytes, count: int = 1) -> None:
        """Remove an item, taken ``count`` times, from the router's taken list: nothing is left to do for it."""
        self.redis.lrem(keys.router_taken(router), -count, cast("str", taken))

    def answer(self, router: str, taken: bytes, question_id: str, answer: str) -> None:
        """Answer a question and remove its item from the taken list."""
        self._run("answer", [keys.explanation(question_id), keys.router_taken(router)], [answer, ANSWER_SECONDS, taken])


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


def _record(reply: Any, message: Any) -> Record | Broken:
    for one in (reply, message):
        if isinstance(one, RedisError):
            return Broken(str(one))
    state, attempt, incarnation, worker, submitted_at, expires_at, begun, group = (field or b"" for field in reply)
    try:
        return Record(
            CallState(state.decode()) if state else None,
            int(attempt or 0),
            incarnation.decode(),
            worker.decode(),
            float(submitted_at or 0.0),
            float(expires_at) if expires_at else None,
            int(begun or 0),
            group.decode(),
            message or b"",
        )
    except ValueError as error:
        return Broken(str(error))
