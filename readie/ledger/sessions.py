"""What is done to sessions in the ledger: calls join them, workers bind and end them, people look at them."""

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple, cast

from redis.exceptions import RedisError

from readie.protocol import keys
from readie.protocol.call import CallHeader
from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import Failure
from readie.protocol.session import SessionRecord, SessionState

from .ledger import Placed, Settled
from .loading import ENDED_SESSION_SECONDS
from .result import encode_template
from .routing import Broken, RoutingLedger

_RESULT_SECONDS: Final = 3600

SessionEnd = Literal[SessionState.CLOSED, SessionState.EXPIRED, SessionState.LOST]


class Owner(NamedTuple):
    """Where a session's sandbox is, and how it was started."""

    worker: str
    incarnation: str
    sandbox: str
    checkpoint_id: str | None
    asked: str | None
    """The checkpoint that was asked for when it was opened."""
    flavor: str
    python: str
    memory_bytes: int | None
    """What its sandbox may hold; ``None``: what the worker gives by itself."""
    gpu: bool = False
    """Whether its sandbox has a GPU."""


class Open(NamedTuple):
    """The call is the one that opens its session."""

    restarted: str | None
    """Why the session was lost before."""


class Waits(NamedTuple):
    """The call waits for its turn."""


class CanNot(NamedTuple):
    """The call can't run in its session."""

    why: Literal["closed", "expired", "lost", "unknown", "many"]
    detail: str = ""


Joined = Open | Owner | Placed | Waits | CanNot | Settled | Broken


class Joining(NamedTuple):
    """A call that comes to its session."""

    header: CallHeader
    attempt: int
    taken: bytes
    """The item on the router's taken list, ``b""`` when the call comes from the waiting ones."""
    sandbox: str = ""
    """By which the router knows the session."""
    message: str = ""
    """Addressed to that one's worker."""
    item: bytes = b""
    """See :attr:`Addressed.item`."""


class SessionLedger(RoutingLedger):
    """The ledger with the operations on sessions."""

    def join_all(self, router: str, most_waiting: int, calls: Sequence[Joining]) -> list[Joined]:
        """Bring calls to their sessions, many in one round trip, in order.

        Args:
            router: id of the router whose taken list holds the items.
            most_waiting: how many calls may wait for their turn in one session.
            calls: each with a session in its header.
        """
        runs = []
        for header, attempt, taken, sandbox, message, item in calls:
            use = header.session
            assert use is not None
            args = [
                header.id,
                attempt,
                use.id,
                use.sandbox,
                int(use.may_open),
                int(use.restart_on_loss),
                use.idle_ttl_seconds,
                sandbox,
                message,
                taken,
                most_waiting,
                item,
            ]
            runs.append(([keys.call(header.id), keys.session(use.id), keys.router_taken(router)], args))
        return [_joined(reply) for reply in self._run_all("session_join", runs)]

    def bind(
        self,
        header: CallHeader,
        sandbox: str,
        checkpoint_id: str | None,
        flavor: str,
        python: str,
        *,
        gpu: bool = False,
    ) -> bool:
        """Make a sandbox that a call has started its session's; ``False``: the session has ended meanwhile.

        Args:
            header: the call's, as it was placed.
            sandbox: its id.
            checkpoint_id: what it was restored from.
            flavor: the worker's.
            python: ``major.minor`` inside.
            gpu: whether it has a GPU.
        """
        use, placement = header.session, header.placement
        assert use is not None
        assert placement is not None
        memory_bytes = header.options.memory_bytes
        return bool(
            self._run(
                "session_bind",
                [keys.session(use.id), keys.call(header.id), keys.worker_memory(placement.worker)],
                [
                    use.id,
                    header.id,
                    placement.attempt,
                    placement.worker,
                    placement.incarnation,
                    sandbox,
                    checkpoint_id or "",
                    header.options.checkpoint_id or "",
                    flavor,
                    python,
                    "" if memory_bytes is None else memory_bytes,
                    "1" if gpu else "",
                ],
            )
        )

    def end_session(
        self,
        session_id: str,
        state: SessionEnd,
        why: str,
        *,
        sandbox: str = "",
        not_incarnation: str = "",
        only_if_idle: bool = False,
        even_unopened: bool = False,
        spare: str = "",
    ) -> bool:
        """End a session, and the calls that run or wait in it; returns whether it has ended by that.

        Args:
            session_id: the session's id.
            state: how it ends.
            why: for people, a clause: ``"was closed"``.
            sandbox: end it only if it has this one.
            not_incarnation: end it only if its worker is another process than this one.
            only_if_idle: end it only if it has been idle for its idle time.
            even_unopened: keep that it has ended also when there is no such session (yet).
            spare: id of a call that ends by itself.
        """
        before, after = encode_template(
            Failure(code=_CODES[state], message=f"session {session_id} {why}"),
        )
        return bool(
            self._run(
                "session_end",
                [keys.session(session_id)],
                [
                    session_id,
                    state.value,
                    why,
                    ENDED_SESSION_SECONDS,
                    sandbox,
                    not_incarnation,
                    int(only_if_idle),
                    int(even_unopened),
                    spare,
                    before,
                    after,
                    _RESULT_SECONDS,
                ],
            )
        )

    def sessions(self) -> list[SessionRecord]:
        """Return every session that has not ended, in the order of their first calls."""
        ids = [member.decode() for member in cast("list[bytes]", self.redis.zrange(keys.SESSIONS, 0, -1))]
        return [record for record in self.session_records(ids) if record is not None and not record.state.ended]

    def session_records(self, session_ids: Sequence[str]) -> list[SessionRecord | None]:
        """Return the records of these sessions, ``None`` for those of which there is none."""
        with self.redis.pipeline(transaction=False) as pipe:
            for session_id in session_ids:
                pipe.hgetall(keys.session(session_id))
                pipe.llen(keys.session_calls(session_id))
            replies = pipe.execute()
        return [
            _record(session_id, fields, waiting)
            for session_id, fields, waiting in zip(session_ids, replies[::2], replies[1::2], strict=True)
        ]

    def sessions_of(self, worker: str) -> list[str]:
        """Return the ids of the sessions that have, or are to have, their sandbox on a worker."""
        return [member.decode() for member in cast("set[bytes]", self.redis.smembers(keys.worker_sessions(worker)))]


_CODES: Final = {
    SessionState.CLOSED: ErrorCode.SESSION_EXPIRED,
    SessionState.EXPIRED: ErrorCode.SESSION_EXPIRED,
    SessionState.LOST: ErrorCode.SESSION_LOST,
}


def _joined(reply: Any) -> Joined:  # noqa: PLR0911 - one for each outcome
    if isinstance(reply, RedisError):
        return Broken(str(reply))
    match reply:
        case [b"open", bytes(lost)]:
            return Open(lost.decode() or None)
        case [b"owner", *fields]:
            worker, incarnation, sandbox, checkpoint_id, asked, flavor, python, memory, gpu = (
                cast("bytes", field or b"").decode() for field in fields
            )
            return Owner(
                worker,
                incarnation,
                sandbox,
                checkpoint_id or None,
                asked or None,
                flavor,
                python,
                int(memory) if memory else None,
                gpu == "1",
            )
        case [b"placed", bytes(at)]:
            return Placed(float(at))
        case [b"waits"]:
            return Waits()
        case [b"ended", b"closed" | b"expired" | b"lost" as state, bytes(why)]:
            return CanNot(cast("Any", state.decode()), why.decode())
        case [b"unknown" | b"many" as why]:
            return CanNot(cast("Any", why.decode()))
        case [b"moved", int(attempt)]:
            return Settled(attempt if attempt >= 0 else None)
    return Broken("the session's record is not one of ours")


def _record(session_id: str, fields: dict[bytes, bytes], waiting: int) -> SessionRecord | None:
    if not fields:
        return None
    text = {name.decode(): value.decode() for name, value in fields.items()}
    return SessionRecord(
        id=session_id,
        state=SessionState(text["state"]),
        worker=text.get("worker", ""),
        sandbox=text.get("sandbox", ""),
        checkpoint_id=text.get("checkpoint_id") or None,
        idle_ttl_seconds=float(text.get("idle_ttl_seconds", 0)),
        opened_at=float(text.get("opened_at", 0)),
        last_used_at=float(text.get("last_used_at", 0)),
        waiting=waiting,
        why=text.get("why", ""),
    )
