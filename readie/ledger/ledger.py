"""Typed access to the ledger's scripts. Holds no state but the connection, so any number may work side by side."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Literal, cast

from pydantic import ValidationError
from redis import Redis

from readie.protocol import keys
from readie.protocol.announcement import Announcement, ReadyCounts, WorkerCounts, encode_ready
from readie.protocol.call import CallHeader
from readie.protocol.catalogue import Catalogue
from readie.protocol.codes import ErrorCode
from readie.protocol.dead_letter import MOST_DEAD_LETTERS, DeadLetter
from readie.protocol.envelope import CallState, Envelope, Failure, Report
from readie.protocol.payload import Buffer, total_size

from .loading import register_scripts
from .result import encode_result

PAYLOAD_SECONDS: Final = 7 * 24 * 3600
"""A payload whose call never ends (its client broke the record, say) goes after a week."""
CANCELLED_SECONDS: Final = 3600
"""How long it is kept that a call was cancelled."""
_PART_BYTES: Final = 8 << 20
"""Larger values are written and read in parts, so that neither Redis nor a process holds them several times."""
AVOID_SECONDS: Final = 60
"""How long a worker is not asked for a checkpoint that it failed to restore."""
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
    begun: int
    """How often the call has begun, this time included."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A call ended by us."""

    at: float
    state: CallState
    """``CANCELLED`` whatever was stored, when the call was cancelled before."""


class Cancelled(StrEnum):
    """What became of the wish to cancel a call."""

    CANCELLED = "cancelled"
    """It had not begun, and never will."""
    STOPPING = "stopping"
    """Its worker stops it; it ends as cancelled in any case."""
    RUNNING = "running"
    """It runs and was left alone."""
    ENDED = "ended"
    """It had ended, or there is no record of it."""


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
        self._scripts = register_scripts(redis)

    def _run(self, script: str, script_keys: list[str], args: list[Any]) -> Any:
        return self._scripts[script](keys=script_keys, args=args)

    def submit(
        self,
        call_id: str,
        message: str,
        reply: str,
        payload: Sequence[Buffer] | None = None,
        expires_seconds: float | None = None,
        *,
        listens: bool = False,
        name: str = "",
        client: str = "",
    ) -> float:
        """Accept a call and wake a router, in one round trip (two with a payload); harmless when sent again.

        Args:
            call_id: new, unguessable id.
            message: what goes on the submit queue.
            reply: client to tell of the end.
            payload: the pieces of the pickled function and arguments when they are not in the message.
            expires_seconds: within which it must begin.
            listens: whether the client wants to hear of its first output or value.
            name: the function's, for people who list calls.
            client: who it is from, likewise.

        Returns:
            The submit time (Redis clock, seconds).
        """
        if payload is not None:
            self._store(keys.payload(call_id), payload, PAYLOAD_SECONDS)
        return float(
            self._run(
                "submit",
                [keys.call(call_id)],
                [
                    call_id,
                    message,
                    reply,
                    "" if expires_seconds is None else expires_seconds,
                    "1" if listens else "",
                    name,
                    client,
                ],
            )
        )

    def claim(self, header: CallHeader, token: str = "") -> tuple[Claim, bytes | None] | None:
        """Begin the attempt a header was placed with; again, with the same token, when the answer was lost.

        Returns:
            The claim and, where the header says so, the stored payload. ``None``: not (or no longer) ours to run.
        """
        placement = header.placement
        assert placement is not None
        token = token or uuid.uuid4().hex
        times = self._run("claim", [keys.call(header.id)], [header.id, placement.attempt, placement.incarnation, token])
        if times is None:
            return None
        payload = self.redis.get(keys.payload(header.id)) if header.payload_by_reference else None
        submitted_at, placed_at, started_at, begun = map(float, times)
        return Claim(submitted_at, placed_at, started_at, int(begun)), cast("bytes | None", payload)

    def store_value(self, call_id: str, attempt: int, value: Buffer, keep_seconds: int) -> None:
        """Store an attempt's pickled result that is above the inline limit; comes before :meth:`finish`."""
        self._store(keys.value(call_id, attempt), [value], keep_seconds)

    def fetch_value(self, call_id: str, attempt: int, size: int) -> bytearray | None:
        """Return what :meth:`store_value` stored, of which ``size`` bytes; ``None``: it is no longer kept.

        Its peak memory is its size: Redis' client would hold a whole reply twice.
        """
        value = bytearray(size)
        for start in range(0, size, _PART_BYTES):
            end = min(start + _PART_BYTES, size)
            part = cast("bytes", self.redis.getrange(keys.value(call_id, attempt), start, end - 1))
            if len(part) != end - start:
                return None
            value[start:end] = part
        return value

    def _store(self, key: str, pieces: Sequence[Buffer], keep_seconds: int) -> None:
        """Store joined pieces as one value, without joining more of them than one part."""
        size = total_size(pieces)
        if size <= _PART_BYTES:
            self.redis.set(key, b"".join(pieces), ex=keep_seconds)
            return
        self.redis.set(key, b"", ex=keep_seconds)
        # The whole at once: Redis would move all that it has for each part that makes the value longer.
        self.redis.setrange(key, size - 1, cast("str", bytes(1)))
        start = 0
        for piece in pieces:
            view = memoryview(piece).cast("B")
            for first in range(0, len(view), _PART_BYTES):
                part = bytes(view[first : first + _PART_BYTES])
                # By its place: a command that is sent again, because its answer was lost, changes nothing.
                self.redis.setrange(key, start + first, cast("str", part))
            start += len(view)

    def finish(
        self, envelope: Envelope, *, attempt: int, keep_seconds: int, unless_begun: bool = False, token: str = ""
    ) -> Ended | None:
        """End a call. ``None``: the call has moved on or ended already, and nothing was stored.

        Args:
            envelope: the end; readers see ``ended_at`` filled in.
            attempt: number of the attempt that ends (0: never placed).
            keep_seconds: how long the result stays.
            unless_begun: leave a call alone that has begun.
            token: the same when the end is told again because the answer was lost; new by itself.
        """
        before, after = encode_result(envelope)
        ended = self._run(
            "finish",
            [keys.call(envelope.id)],
            [
                envelope.id,
                attempt,
                envelope.state.value,
                before,
                after,
                keep_seconds,
                "1" if unless_begun else "0",
                token or uuid.uuid4().hex,
            ],
        )
        stored = None if ended is None else Ended(float(ended[0]), CallState(ended[1].decode()))
        if envelope.value_by_reference and (stored is None or stored.state is not envelope.state):
            self.redis.delete(keys.value(envelope.id, attempt))
        return stored

    def retry(self, call_id: str, attempt: int, delay_seconds: float, why: str) -> bool:
        """Have a call run again whose running attempt failed; ``False``: it has moved on, or is cancelled.

        Args:
            call_id: the call.
            attempt: the one that failed.
            delay_seconds: how long it waits before.
            why: what its status says until then.
        """
        return bool(self._run("retry", [keys.call(call_id)], [call_id, attempt, f"{delay_seconds:.6f}", why]))

    def cancel(self, call_id: str, *, stop_running: bool = True) -> Cancelled:
        """Cancel a call, wherever it is; a running one only with ``stop_running``."""
        submitted, attempt, worker = cast(
            "list[bytes | None]", self.redis.hmget(keys.call(call_id), ["submitted_at", "attempt", "worker"])
        )
        envelope = Envelope(
            id=call_id,
            state=CallState.CANCELLED,
            failure=Failure(code=ErrorCode.CANCELLED, message="the call was cancelled"),
            submitted_at=float(submitted or 0.0),
            report=Report(worker=worker.decode() if worker else None, attempt=int(attempt or 0)),
        )
        outcome = self._run(
            "cancel",
            [keys.call(call_id)],
            [
                call_id,
                *encode_result(envelope),
                CANCELLED_SECONDS,
                keys.worker_control(""),
                "1" if stop_running else "0",
            ],
        )
        return Cancelled(outcome.decode())

    def cancelled_among(self, call_ids: Sequence[str]) -> list[str]:
        """Return which of these running calls are to be stopped."""
        with self.redis.pipeline(transaction=False) as pipe:
            for call_id in call_ids:
                pipe.hexists(keys.call(call_id), "cancel_before")
            marks = pipe.execute()
        return [call_id for call_id, marked in zip(call_ids, marks, strict=True) if marked]

    def requeue(self, call_id: str, worker: str, incarnation: str) -> str:
        """Take a call back that ``worker`` has not begun; returns ``"requeued"`` or the state it is in."""
        result = self._run("requeue", [keys.call(call_id)], [call_id, incarnation, worker])
        return cast("bytes", result).decode()

    def watch(self, call_id: str, reply: str) -> Watch:
        """Return a call's result, or be told of it on the channel ``keys.replies(reply)``."""
        state, result = self._run("watch", [keys.call(call_id)], [reply, call_id])
        return Watch(CallState(state.decode()) if state else None, result or None)

    def state(self, call_id: str) -> tuple[CallState | None, str]:
        """Return a call's state (``None``: no record) and what a waiting call waits for, for people."""
        state, waits_for = self._run("state", [keys.call(call_id)], [call_id])
        return CallState(state.decode()) if state else None, waits_for.decode()

    def announce(
        self,
        announcement: Announcement,
        lease_seconds: int,
        ready: ReadyCounts = MappingProxyType({}),
        counts: WorkerCounts | None = None,
    ) -> bool:
        """Write or renew a worker's entry; ``True`` when it is new or changed, ``ready`` and ``counts`` apart."""
        return bool(
            self._run(
                "announce",
                [
                    keys.worker(announcement.name),
                    keys.WORKERS,
                    keys.catalogue(announcement.catalogue or ""),
                ],
                [
                    announcement.name,
                    announcement.incarnation,
                    announcement.model_dump_json(),
                    0 if announcement.draining else announcement.slots,
                    lease_seconds,
                    CATALOGUE_SECONDS,
                    *(
                        "" if size is None else size
                        for size in (announcement.memory_bytes, announcement.call_memory_bytes)
                    ),
                    encode_ready(ready),
                    announcement.max_sessions,
                    int(announcement.evicts_idle_sessions),
                    "" if counts is None else counts.model_dump_json(),
                ],
            )
        )

    def tell_ready(self, worker: str, incarnation: str, ready: ReadyCounts) -> None:
        """Tell which ready sandboxes a worker has; says nothing for an entry that is gone or another process's."""
        self._run("tell_ready", [keys.worker(worker)], [incarnation, encode_ready(ready)])

    def publish_catalogue(self, catalogue: Catalogue) -> None:
        """Store a catalogue under its digest, where routers look for it; its lease is renewed by :meth:`announce`."""
        self.redis.set(keys.catalogue(catalogue.digest()), catalogue.model_dump_json(), ex=CATALOGUE_SECONDS)

    def withdraw(self, worker: str) -> None:
        """Remove a worker's entry: nothing is placed on it any more."""
        self._run("withdraw", [keys.worker(worker), keys.WORKERS], [worker])

    def avoid(self, worker: str, checkpoint_id: str) -> None:
        """Have routers choose something else on a worker, for a while, than a checkpoint it failed to restore."""
        self._run("avoid", [keys.worker_avoided(worker)], [checkpoint_id, AVOID_SECONDS])

    def bury(self, letter: DeadLetter, *, forged: bool = False) -> None:
        """Keep what can't be read for people to see, the newest :data:`MOST_DEAD_LETTERS`.

        Args:
            letter: what is kept of it.
            forged: count it as not signed.
        """
        self._run("bury", [], [letter.model_dump_json(), MOST_DEAD_LETTERS, int(forged)])

    def dead_letters(self, *, clear: bool = False) -> list[DeadLetter]:
        """Return the dead letters, newest first, and with ``clear`` remove them."""
        with self.redis.pipeline(transaction=True) as pipe:
            pipe.lrange(keys.DEAD_LETTERS, 0, -1)
            if clear:
                pipe.delete(keys.DEAD_LETTERS)
            letters, *_ = pipe.execute()
        return [_dead_letter(letter) for letter in letters]

    def held_calls(self, worker: str) -> list[str]:
        """Return the ids of the calls a worker holds."""
        with self.redis.pipeline(transaction=False) as pipe:
            for held in (keys.worker_calls(worker), keys.worker_session_calls(worker)):
                pipe.zrange(held, 0, -1)
            return [member.decode() for members in pipe.execute() for member in members]


def _dead_letter(text: bytes) -> DeadLetter:
    try:
        return DeadLetter.model_validate_json(text)
    except ValidationError:
        return DeadLetter.of(text, keys.DEAD_LETTERS, "not a dead letter of ours")
