"""The calls that run in this process, and the word from outside to stop one of them."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from celery.worker import state as celerys_state
from celery.worker.control import control_command, inspect_command
from redis.exceptions import RedisError

from readie.ledger import Ledger
from readie.protocol import keys
from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import Failure
from readie.subscription import Subscription

from .sandbox.sandbox import Sandbox

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.5
_CANCELLED: Final = Failure(code=ErrorCode.CANCELLED, message="the call was cancelled")


class StoppedError(Exception):
    """The call was stopped before it had this sandbox."""


class RunningCall:
    """One call that a thread runs. ``stopped`` and what is private are guarded by ``_lock``."""

    def __init__(self, call_id: str, attempt: int) -> None:
        self.id = call_id
        self.attempt = attempt
        self.runs = False
        """Between the claim and the end: the ledger must say that it runs here."""
        self.stopped: Failure | None = None
        """What it ends with, whatever it does, once it was stopped from outside."""
        self._lock = threading.Lock()
        self._sandbox: Sandbox | None = None
        self._on_news: Callable[[], None] | None = None
        self._killed = False

    @property
    def cancelled(self) -> bool:
        """Whether it was stopped from outside."""
        return self.stopped is not None

    def runs_in(self, sandbox: Sandbox) -> None:
        """Make ``sandbox`` what is killed when the call is cancelled; ``StoppedError`` when it has been."""
        with self._lock:
            if self.stopped:
                raise StoppedError
            self._sandbox = sandbox

    def on_news(self, hear: Callable[[], None] | None) -> None:
        """Have ``hear`` called, from any thread, when the reader of its values may have gone on."""
        with self._lock:
            self._on_news = hear

    def news(self) -> None:
        """Say that the reader of its values may have gone on."""
        with self._lock:
            if self._on_news is not None:
                self._on_news()

    @property
    def sandbox(self) -> Sandbox | None:
        """The one it runs in, once it has one."""
        with self._lock:
            return self._sandbox

    def stop(self, failure: Failure) -> None:
        """Kill its sandbox, now and whenever it gets another."""
        with self._lock:
            self.stopped = self.stopped or failure
            if self._sandbox is not None:
                self._killed = True
                self._sandbox.kill()

    def leave_sandbox(self) -> bool:
        """Let its sandbox be, whatever comes; ``False``: it has been killed."""
        with self._lock:
            self._sandbox = None
            return not self._killed


class RunningCalls:
    """All calls of this process. ``_calls``, ``_stopped`` and ``entered`` are guarded by ``_lock``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gone = threading.Condition(self._lock)
        self._calls: set[RunningCall] = set()
        self._stopped: Failure | None = None
        self.entered = 0
        """How many there have been."""

    @contextlib.contextmanager
    def enter(self, call_id: str, attempt: int) -> Iterator[RunningCall | None]:
        """Let a call be stopped from here on; to be entered before it is claimed, so that no word is missed.

        Gives ``None`` when this very attempt runs here already.
        """
        call = RunningCall(call_id, attempt)
        with self._lock:
            self.entered += 1
            doubled = any((other.id, other.attempt) == (call_id, attempt) for other in self._calls)
            if not doubled:
                call.stopped = self._stopped
                self._calls.add(call)
        try:
            yield None if doubled else call
        finally:
            with self._gone:
                self._calls.discard(call)
                self._gone.notify_all()

    def all(self) -> list[RunningCall]:
        """Return all."""
        with self._lock:
            return list(self._calls)

    def stop_all(self, failure: Failure) -> None:
        """Stop every call, and those that are still to come."""
        with self._lock:
            self._stopped = failure
        for call in self.all():
            call.stop(failure)

    def finish(self, failure: Failure) -> None:
        """Return when no call runs; those that are still to come are stopped before they begin."""
        with self._gone:
            self._stopped = self._stopped or failure
            self._gone.wait_for(lambda: not self._calls)

    def sandboxes(self) -> dict[str, str]:
        """Return the call that each busy sandbox serves, by the sandbox's id."""
        with self._lock:
            calls = list(self._calls)
        return {sandbox.id: call.id for call in calls if (sandbox := call.sandbox) is not None}

    def cancel(self, call_id: str) -> None:
        """Stop a call, if it runs here."""
        for call in self._of_id(call_id):
            _log.info("call=%s: cancelled, its sandbox is killed", call_id)
            call.stop(_CANCELLED)

    def news(self, call_id: str) -> None:
        """Tell a call, if it runs here, that the reader of its values may have gone on."""
        for call in self._of_id(call_id):
            call.news()

    def _of_id(self, call_id: str) -> list[RunningCall]:
        with self._lock:
            return [call for call in self._calls if call.id == call_id]


class ControlChannel:
    """Listens, in a thread of its own, for the calls to stop, news of their readers, and the sessions that have ended.

    A word can be missed while the connection is broken, so every (re)subscription is followed by a look at the records.
    (Calls look for missed news of their readers by themselves.)
    """

    def __init__(
        self, ledger: Ledger, incarnation: str, calls: RunningCalls, session_ended: Callable[[str], None]
    ) -> None:
        self._ledger = ledger
        self._session_ended = session_ended
        self._channel = keys.worker_control(incarnation)
        self._reader_news = keys.reader_news(incarnation, "*")
        self._calls = calls
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="control-channel", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()
        if self._thread.is_alive():
            with contextlib.suppress(RedisError):
                self._ledger.redis.publish(self._channel, b"")
            self._thread.join()

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                with Subscription(self._ledger.redis, self._channel, self._reader_news) as subscription:
                    while not self._closed.is_set():
                        word = subscription.hear()
                        if word is None:
                            for call_id in self._ledger.cancelled_among([call.id for call in self._calls.all()]):
                                self._calls.cancel(call_id)
                        elif word:
                            self._hear(word.decode(errors="replace"))
            except RedisError as error:
                _log.warning("can't hear of cancelled calls: %s; trying again", error)
                self._closed.wait(_RETRY_SECONDS)

    def _hear(self, word: str) -> None:
        if word.startswith(keys.NEWS):
            self._calls.news(word.removeprefix(keys.NEWS))
        elif word.startswith(keys.SESSION_WORD):
            self._session_ended(word.removeprefix(keys.SESSION_WORD))
        else:
            self._calls.cancel(word)


@control_command(variadic="task_id", signature="[id1 [id2 [... [idN]]]]")  # type: ignore[untyped-decorator]
def revoke(state: Any, task_id: str | list[str], terminate: bool = False, **_: Any) -> dict[str, str]:
    """Cancel calls by id, those that run only with ``terminate``.

    Takes the place of Celery's own command, which would write a result over the ledger's. Any worker can cancel any
    call, so it does not matter which of them are asked.
    """
    ids = [task_id] if isinstance(task_id, str) else list(task_id)
    ledger: Ledger = state.app.tasks[keys.TASK_NAME].ledger
    try:
        return {"ok": ", ".join(f"{one}: {ledger.cancel(one, stop_running=terminate)}" for one in ids)}
    except RedisError as error:
        return {"error": f"can't reach the calls' records: {error}"}


@control_command(  # type: ignore[untyped-decorator]
    variadic="task_id", args=[("signal", str)], signature="<signal> [id1 [id2 [... [idN]]]]"
)
def terminate(state: Any, signal: str, task_id: str | list[str], **_: Any) -> dict[str, str]:
    """Cancel calls by id, those that run as well; ``signal`` means nothing, their sandboxes are killed."""
    del signal
    answer: dict[str, str] = revoke(state, task_id, terminate=True)
    return answer


@inspect_command(alias="dump_active")  # type: ignore[untyped-decorator]
def active(state: Any, safe: bool = False, **_: Any) -> list[dict[str, Any]]:
    """List the calls that run. Takes the place of Celery's own command, which does not know of those of sessions."""
    tasks = [request.info(safe=safe) for request in state.tset(celerys_state.active_requests)]
    return [*tasks, *state.app.tasks[keys.TASK_NAME].sessions.active()]
