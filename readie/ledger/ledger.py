"""Typed access to the ledger's scripts. Holds no state but the connection, so any number may work side by side."""

from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, Literal, cast

from redis import Redis
from redis.commands.core import Script

from readie.protocol import keys
from readie.protocol.announcement import Announcement
from readie.protocol.call import CallHeader
from readie.protocol.catalogue import Catalogue
from readie.protocol.envelope import CallState, Envelope
from readie.protocol.payload import Buffer

from .result import encode_result

PAYLOAD_SECONDS: Final = 7 * 24 * 3600
"""A payload whose call never ends (its client broke the record, say) goes after a week."""
CATALOGUE_SECONDS: Final = 3600
"""A catalogue that no worker has announced for an hour goes."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The call is on the worker's queue."""

    at: float
    """Redis clock, seconds."""


@dataclass(frozen=True, slots=True)
class NoRoom:
    """The worker can't take the call now."""

    reason: Literal["full", "gone"]


@dataclass(frozen=True, slots=True)
class Settled:
    """The call is past being placed (``attempt`` is ``None``), or was placed ``attempt`` times before."""

    attempt: int | None


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker's right to run one attempt; times are Redis clock seconds."""

    submitted_at: float
    placed_at: float
    started_at: float


@dataclass(frozen=True, slots=True)
class Ended:
    """A call ended by us."""

    at: float


@dataclass(frozen=True, slots=True)
class Watch:
    """What is known of a call by now."""

    state: CallState | None
    """``None``: no record (it never was, or its result is no longer kept)."""
    result: bytes | None
    """The stored result when the call has ended."""


class Ledger:
    """Every change of a call's record.

    Args:
        redis: a connection (pool) with ``decode_responses=False``.
    """

    def __init__(self, redis: "Redis") -> None:
        self.redis = redis
        self._scripts: dict[str, Script] = {
            path.name.removesuffix(".lua"): redis.register_script(path.read_text())
            for path in (files(__package__) / "scripts").iterdir()
            if path.name.endswith(".lua")
        }

    def _run(self, script: str, script_keys: list[str], args: list[Any]) -> Any:
        return self._scripts[script](keys=script_keys, args=args)

    def submit(self, call_id: str, message: str, reply: str, payload: bytes | None = None) -> float:
        """Accept a call and wake a router, in one round trip (two with a payload); harmless when sent again.

        Args:
            call_id: new, unguessable id.
            message: what goes on the submit queue.
            reply: client to tell of the end.
            payload: the pickled function and arguments when they are not in the message.

        Returns:
            The submit time (Redis clock, seconds).
        """
        if payload is not None:
            self.redis.set(keys.payload(call_id), payload, ex=PAYLOAD_SECONDS)
        return float(
            self._run("submit", [keys.call(call_id), keys.PENDING, keys.SUBMIT_QUEUE], [call_id, message, reply])
        )

    def place(self, header: CallHeader, message: str, router: str, taken: bytes) -> Placed | NoRoom | Settled:
        """Reserve a slot of ``header.placement.worker`` and send the message there.

        Args:
            header: with the placement to make.
            message: the readdressed message.
            router: id of the router whose taken list holds the item.
            taken: the item, ``b""`` when the call comes from the waiting ones.
        """
        placement = header.placement
        assert placement is not None
        outcome, *detail = self._run(
            "place",
            [
                keys.call(header.id),
                keys.worker(placement.worker),
                keys.worker_calls(placement.worker),
                keys.worker_queue(placement.worker),
                keys.WAITING,
                keys.router_taken(router),
            ],
            [header.id, placement.attempt, placement.incarnation, placement.worker, message, taken],
        )
        if outcome == b"placed":
            return Placed(float(detail[0]))
        if outcome == b"moved":
            return Settled(None if detail[0] < 0 else detail[0])
        return NoRoom("full" if outcome == b"full" else "gone")

    def capacity(self) -> str:
        """Return the counter of events that may let a waiting call run; read it before looking for a worker."""
        value = cast("bytes | None", self.redis.get(keys.CAPACITY))
        return value.decode() if value else "0"

    def park(self, call_id: str, capacity: str, router: str, taken: bytes, waits_for: str) -> bool:
        """Let a call wait. ``False``: capacity changed since ``capacity`` was read, look for a worker again."""
        return bool(
            self._run(
                "park",
                [keys.call(call_id), keys.WAITING, keys.CAPACITY, keys.router_taken(router)],
                [call_id, capacity, taken, waits_for],
            )
        )

    def claim(self, header: CallHeader) -> tuple[Claim, bytes | None] | None:
        """Begin the attempt a header was placed with.

        Returns:
            The claim and, where the header says so, the stored payload. ``None``: not (or no longer) ours to run.
        """
        placement = header.placement
        assert placement is not None
        times = self._run("claim", [keys.call(header.id)], [placement.attempt, placement.incarnation])
        if times is None:
            return None
        payload = self.redis.get(keys.payload(header.id)) if header.payload_by_reference else None
        return Claim(*(float(time) for time in times)), cast("bytes | None", payload)

    def store_value(self, call_id: str, attempt: int, value: Buffer, keep_seconds: int) -> None:
        """Store an attempt's pickled result that is above the inline limit; comes before :meth:`finish`."""
        self.redis.set(keys.value(call_id, attempt), memoryview(value), ex=keep_seconds)

    def finish(self, envelope: Envelope, *, attempt: int, keep_seconds: int) -> Ended | None:
        """End a call. ``None``: the call has moved on or ended already, and nothing was stored.

        Args:
            envelope: the end; readers see ``ended_at`` filled in.
            attempt: number of the attempt that ends (0: never placed).
            keep_seconds: how long the result stays.
        """
        before, after = encode_result(envelope)
        ended = self._run(
            "finish",
            [
                keys.call(envelope.id),
                keys.result(envelope.id),
                keys.payload(envelope.id),
                keys.PENDING,
                keys.WAITING,
                keys.CAPACITY,
                keys.SUBMIT_QUEUE,
            ],
            [
                envelope.id,
                attempt,
                envelope.state.value,
                before,
                after,
                keep_seconds,
                keys.replies(""),
                keys.worker_calls(""),
                keys.WAKE,
            ],
        )
        if ended is not None:
            return Ended(float(ended))
        if envelope.value_by_reference:
            self.redis.delete(keys.value(envelope.id, attempt))
        return None

    def requeue(self, call_id: str, worker: str, incarnation: str) -> str:
        """Take a call back that ``worker`` has not begun; returns ``"requeued"`` or the state it is in."""
        result = self._run(
            "requeue",
            [keys.call(call_id), keys.worker_calls(worker), keys.SUBMIT_QUEUE, keys.CAPACITY, keys.WAITING],
            [call_id, incarnation, worker, keys.WAKE],
        )
        return cast("bytes", result).decode()

    def watch(self, call_id: str, reply: str) -> Watch:
        """Return a call's result, or be told of it on the channel ``keys.replies(reply)``."""
        state, result = self._run("watch", [keys.call(call_id), keys.result(call_id)], [reply])
        return Watch(CallState(state.decode()) if state else None, result or None)

    def state(self, call_id: str) -> tuple[CallState | None, str]:
        """Return a call's state (``None``: no record) and what a waiting call waits for, for people."""
        state, waits_for = cast("list[bytes | None]", self.redis.hmget(keys.call(call_id), ["state", "waits_for"]))
        return CallState(state.decode()) if state else None, (waits_for or b"").decode()

    def announce(self, announcement: Announcement, lease_seconds: int) -> bool:
        """Write or renew a worker's entry; ``True`` when it is new or changed."""
        return bool(
            self._run(
                "announce",
                [
                    keys.worker(announcement.name),
                    keys.WORKERS,
                    keys.CAPACITY,
                    keys.WAITING,
                    keys.SUBMIT_QUEUE,
                    keys.catalogue(announcement.catalogue or ""),
                ],
                [
                    announcement.name,
                    announcement.incarnation,
                    announcement.model_dump_json(),
                    0 if announcement.draining else announcement.slots,
                    lease_seconds,
                    keys.WAKE,
                    CATALOGUE_SECONDS,
                ],
            )
        )

    def publish_catalogue(self, catalogue: Catalogue) -> None:
        """Store a catalogue under its digest, where routers look for it; its lease is renewed by :meth:`announce`."""
        self.redis.set(keys.catalogue(catalogue.digest()), catalogue.model_dump_json(), ex=CATALOGUE_SECONDS)

    def withdraw(self, worker: str) -> None:
        """Remove a worker's entry: nothing is placed on it any more."""
        with self.redis.pipeline() as pipe:
            pipe.delete(keys.worker(worker))
            pipe.zadd(keys.WORKERS, {worker: 0})
            pipe.execute()

    def held_calls(self, worker: str) -> list[str]:
        """Return the ids of the calls a worker holds."""
        return [member.decode() for member in cast("list[bytes]", self.redis.zrange(keys.worker_calls(worker), 0, -1))]
