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

from .sandbox.sandbox import Sandbox

_log = logging.getLogger(__name__)

_SILENCE_SECONDS: Final = 15.0
"""After this long without a word, the calls are looked up: bounds what any lost notice can cost."""
_RETRY_SECONDS: Final = 0.5


class StoppedError(Exception):
    """The call was cancelled before it had this sandbox."""


class RunningCall:
    """One call that a thread runs. ``cancelled`` and what is private are guarded by ``_lock``."""

    def __init__(self, call_id: str) -> None:
        self.id = call_id
        self.cancelled = False
        self._lock = threading.Lock()
        self._sandbox: Sandbox | None = None
        self._on_news: Callable[[], None] | None = None
        self._killed = False

    def runs_in(self, sandbox: Sandbox) -> None:
        """Make ``sandbox`` what is killed when the call is cancelled; ``StoppedError`` when it has been."""
        with self._lock:
            if self.cancelled:
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

    def cancel(self) -> None:
        """Kill its sandbox, now and whenever it gets another."""
        with self._lock:
            self.cancelled = True
            if self._sandbox is not None:
                self._killed = True
                self._sandbox.kill()

    def leave_sandbox(self) -> bool:
        """Let its sandbox be, whatever comes; ``False``: it has been killed."""
        with self._lock:
            self._sandbox = None
            return not self._killed


class RunningCalls:
    """All calls of this process. ``_calls`` is guarded by ``_lock``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: set[RunningCall] = set()

    @contextlib.contextmanager
    def enter(self, call_id: str) -> Iterator[RunningCall]:
        """Let a call be cancelled from here on; to be entered before it is claimed, so that no word is missed."""
        call = RunningCall(call_id)
        with self._lock:
            self._calls.add(call)
        try:
            yield call
        finally:
            with self._lock:
                self._calls.remove(call)

    def ids(self) -> list[str]:
        """Return the ids of all."""
        with self._lock:
            return [call.id for call in self._calls]

    def sandboxes(self) -> dict[str, str]:
        """Return the call that each busy sandbox serves, by the sandbox's id."""
        with self._lock:
            calls = list(self._calls)
        return {sandbox.id: call.id for call in calls if (sandbox := call.sandbox) is not None}

    def cancel(self, call_id: str) -> None:
        """Stop a call, if it runs here."""
        for call in self._of_id(call_id):
            _log.info("call %s: cancelled, its sandbox is killed", call_id)
            call.cancel()

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
                with self._ledger.redis.pubsub() as pubsub:  # type: ignore[no-untyped-call]
                    pubsub.subscribe(self._channel)
                    while not self._closed.is_set():
                        message = pubsub.get_message(timeout=_SILENCE_SECONDS)
                        if message is None or message["type"] == "subscribe":
                            for call_id in self._ledger.cancelled_among(self._calls.ids()):
                                self._calls.cancel(call_id)
                        elif message["type"] == "message":
                            self._hear(message["data"].decode(errors="replace"))
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
