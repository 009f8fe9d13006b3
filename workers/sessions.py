"""The sessions of this worker: their sandboxes between calls, and their ends."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from redis.exceptions import RedisError

from readie.ledger.sessions import SessionEnd, SessionLedger
from readie.protocol.call import CallHeader
from readie.protocol.reading import ReadPlaced
from readie.protocol.session import SessionState

from .outcome import Outcome
from .sandbox.starter import Started
from .serving import Stage
from .session_queue import Events, SessionQueue

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.5
"""How long a sandbox that ended by itself, or a session's idle time that is over, may go unnoticed."""
_PAUSE_SECONDS: Final = 2.0
"""After how long without a call a sandbox is paused."""
_DIED: Final = "was lost: its sandbox died"
_RECORDS_LOOK_SECONDS: Final = 10.0
"""Between two looks at the sessions' records: bounds what a lost word of a session's end can cost."""


@dataclass(eq=False)
class OpenSession:
    """A session whose sandbox is here.

    ``busy``, ``idle_since`` (monotonic), ``at_rest`` and ``paused`` are guarded by its ``Sessions``.
    """

    id: str
    stage: Stage
    started: Started
    idle_ttl_seconds: float
    hold: contextlib.ExitStack
    """Keeps the stage."""
    queue: SessionQueue | None = None
    busy: bool = True
    idle_since: float = field(default_factory=time.monotonic)
    at_rest: bool = False
    """Nothing that its calls began goes on between them."""
    paused: bool = False

    @property
    def sandbox_id(self) -> str:
        """Id of its sandbox: what the ledger knows this session by."""
        return self.started.sandbox.id


class Sessions:
    """Keeps the sandboxes of sessions from call to call. ``_open`` is guarded by ``_lock``.

    The ledger decides whether a session lives and which call runs in it; a sandbox whose session has ended there goes.

    Args:
        ledger: the sessions' records.
        flavor: this worker's.
        read: reads the items of their queues.
        events: gives Celery's event dispatcher, ``None`` while there is none.
        on_dead_letter: called for each item of a session's queue that is no call.
    """

    def __init__(
        self,
        ledger: SessionLedger,
        flavor: str,
        read: ReadPlaced,
        events: Callable[[], Events | None] = lambda: None,
        on_dead_letter: Callable[[], None] = lambda: None,
    ) -> None:
        self._ledger = ledger
        self._read = read
        self._events = events
        self._on_dead_letter = on_dead_letter
        self._flavor = flavor
        self._lock = threading.Lock()
        self._gone = threading.Condition(self._lock)
        self._open: dict[str, OpenSession] = {}
        self._untold: dict[str, tuple[str, SessionEnd, str]] = {}
        """Ends that Redis has not heard of: id, state and why by sandbox."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sessions", daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        """How many there are."""
        with self._lock:
            return len(self._open)

    def sandboxes(self) -> dict[str, str]:
        """Return the session that has each sandbox, by the sandbox's id."""
        with self._lock:
            return {sandbox_id: session.id for sandbox_id, session in self._open.items()}

    def wait_none(self, timeout: float) -> None:
        """Return when there is none, or after ``timeout`` seconds."""
        with self._gone:
            self._gone.wait_for(lambda: not self._open, timeout)

    def take(self, header: CallHeader) -> OpenSession | None:
        """Return the session that a call runs in, which is the call's until ``give_back``; ``None``: it is not here."""
        assert header.placement is not None
        with self._lock:
            session = self._open.get(header.placement.sandbox or "")
            if session is None or session.busy or self._closed.is_set():
                return None
            session.busy = True
            if session.paused:
                session.paused = False
                session.started.sandbox.resume()
        session.stage.supply.wake()
        if session.started.sandbox.alive:
            return session
        self._end(session, SessionState.LOST, _DIED, spare=header.id)
        session.stage.supply.rest()
        return None

    def open(
        self, header: CallHeader, started: Started, stage: Stage, hold: contextlib.ExitStack
    ) -> OpenSession | None:
        """Make a connected sandbox a session's; ``None``: the session has ended meanwhile.

        The sandbox stays the caller's to discard in that case, and ``hold``, which keeps the stage, to close. Raises
        ``RedisError``.
        """
        assert header.session is not None
        ttl_seconds = header.session.idle_ttl_seconds
        session = OpenSession(header.session.id, stage, started, ttl_seconds, hold.pop_all())
        # Before it is bound: the word of its end may follow at once.
        with self._lock:
            self._open[session.sandbox_id] = session
        bound = False
        try:
            python = stage.served.filesystem.python_version
            gpu = stage.served.shape.gpu != "none"
            bound = self._ledger.bind(header, session.sandbox_id, started.checkpoint_id, self._flavor, python, gpu=gpu)
        except RedisError:
            # It may have been bound all the same.
            self._untold[session.sandbox_id] = session.id, SessionState.LOST, "was lost: its sandbox is gone"
            raise
        finally:
            if not bound:
                self._forget(session)
                hold.enter_context(session.hold.pop_all())
        return session if bound else None

    def serve(self, session: OpenSession, run: Callable[[CallHeader, bytes | None], Outcome | None]) -> None:
        """Begin to run the calls of a session that has just been opened."""
        session.queue = SessionQueue(
            self._ledger,
            session.id,
            session.sandbox_id,
            read=self._read,
            run=run,
            events=self._events,
            is_open=lambda: self._is_open(session),
            ended=self.ended,
            on_dead_letter=self._on_dead_letter,
        )

    def active(self) -> list[dict[str, Any]]:
        """Return the calls that run, as Celery's ``inspect active`` shows them; not those that open a session."""
        with self._lock:
            queues = [session.queue for session in self._open.values()]
        return [shown for queue in queues if queue is not None and (shown := queue.active) is not None]

    def _is_open(self, session: OpenSession) -> bool:
        with self._lock:
            return session.sandbox_id in self._open

    def not_here(self, header: CallHeader) -> None:
        """End a session that the ledger has here and that is not; its call ends by itself. Raises ``RedisError``."""
        assert header.session is not None
        assert header.placement is not None
        self._ledger.end_session(
            header.session.id,
            SessionState.LOST,
            "was lost: its sandbox is gone",
            sandbox=header.placement.sandbox or "",
            spare=header.id,
        )

    def give_back(self, session: OpenSession, *, at_rest: bool) -> None:
        """Let the next call have the session, in which nothing goes on until then if it is ``at_rest``."""
        with self._gone:
            self._gone.notify_all()
            session.busy = False
            session.at_rest = at_rest
            session.idle_since = time.monotonic()
        session.stage.supply.rest()

    def lose(self, session: OpenSession, call_id: str, why: str) -> None:
        """End a session with the call that had it and that ends by itself."""
        self._end(session, SessionState.LOST, f"was lost: call {call_id} ended its sandbox ({why})", spare=call_id)
        session.stage.supply.rest()

    def _end(self, session: OpenSession, state: SessionEnd, why: str, *, spare: str = "") -> None:
        try:
            self._ledger.end_session(session.id, state, why, sandbox=session.sandbox_id, spare=spare)
        except RedisError as error:
            _log.warning("session=%s: its end can't be told yet: %s", session.id, error)
            self._untold[session.sandbox_id] = session.id, state, why
        self._remove(session)

    def ended(self, sandbox_id: str) -> None:
        """Remove the sandbox of a session that has ended in the ledger."""
        with self._lock:
            session = self._open.get(sandbox_id)
        if session is not None:
            self._remove(session)

    def close(self) -> None:
        """End all: this worker stops. Calls that run have their time."""
        self._closed.set()
        self._thread.join()
        with self._gone:
            self._gone.wait_for(lambda: not any(session.busy for session in self._open.values()))
            sessions = list(self._open.values())
        for session in sessions:
            self._end(session, SessionState.LOST, "was lost: its worker was shut down")

    def _forget(self, session: OpenSession) -> bool:
        with self._gone:
            self._gone.notify_all()
            return self._open.pop(session.sandbox_id, None) is not None

    def _remove(self, session: OpenSession) -> None:
        if self._forget(session):
            _log.info("session=%s: ended, its sandbox %s is removed", session.id, session.sandbox_id)
            session.stage.supply.remove(session.started)
            session.hold.close()

    def _watch(self) -> None:
        next_look = time.monotonic() + _RECORDS_LOOK_SECONDS
        while not self._closed.wait(_LOOK_SECONDS):
            try:
                self._tell_untold()
                self._end_idle()
                self._pause_idle()
                if time.monotonic() >= next_look:
                    self._look_at_records()
                    next_look = time.monotonic() + _RECORDS_LOOK_SECONDS
            except RedisError as error:
                _log.warning("can't look after the sessions: %s; trying again", error)

    def _tell_untold(self) -> None:
        for sandbox_id, (session_id, state, why) in list(self._untold.items()):
            self._ledger.end_session(session_id, state, why, sandbox=sandbox_id)
            del self._untold[sandbox_id]

    def _end_idle(self) -> None:
        now = time.monotonic()
        with self._lock:
            idle = [session for session in self._open.values() if not session.busy]
        for session in idle:
            if not session.started.sandbox.alive:
                self._end(session, SessionState.LOST, _DIED)
            elif now - session.idle_since > session.idle_ttl_seconds and self._ledger.end_session(
                session.id,
                SessionState.EXPIRED,
                f"expired: it was idle for {session.idle_ttl_seconds:g} s",
                sandbox=session.sandbox_id,
                only_if_idle=True,
            ):
                self._remove(session)

    def _pause_idle(self) -> None:
        """Pause what only waits, see ``Sandbox.pause``; with a network, others may want an answer meanwhile."""
        idle_since = time.monotonic() - _PAUSE_SECONDS
        with self._lock:
            for session in self._open.values():
                waits = session.at_rest and not session.busy and session.idle_since < idle_since
                if waits and not session.paused and session.stage.served.shape.network == "none":
                    session.paused = True
                    session.started.sandbox.pause()

    def _look_at_records(self) -> None:
        with self._lock:
            sessions = [session for session in self._open.values() if not session.busy]
        if sessions:
            records = self._ledger.session_records([session.id for session in sessions])
            for session, record in zip(sessions, records, strict=True):
                if record is None or record.state.ended or record.sandbox != session.sandbox_id:
                    self._remove(session)
