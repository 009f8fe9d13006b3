"""The calls of one session, taken off its own queue by a thread of its own.

Celery's consumer would hand each call to the hub, and the hub to a thread: that takes longer than a call in a sandbox
that is there. Its events are sent all the same, and ``inspect active`` shows what runs.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from redis.exceptions import RedisError

from readie.ledger import Ledger
from readie.protocol import keys, task
from readie.protocol.call import CallHeader
from readie.protocol.dead_letter import DeadLetter
from readie.protocol.owner import owner_of
from readie.protocol.reading import ReadPlaced, UnreadableError, read_argument

from .outcome import Outcome

_log = logging.getLogger(__name__)

_WAIT_SECONDS: Final = 5
_RETRY_SECONDS: Final = 0.5


class Events(Protocol):
    """Celery's event dispatcher."""

    def send(self, type: str, **fields: Any) -> Any:  # noqa: A002 - as Celery calls it
        """Send an event."""


class SessionQueue:
    """Runs what is sent to one sandbox, one call after another, until its session has ended.

    Args:
        ledger: whose connection is used; unreadable items go there.
        session_id: whose calls these are.
        sandbox: id of the sandbox.
        read: reads an item.
        run: runs a call.
        events: gives Celery's event dispatcher, ``None`` while there is none.
        is_open: whether the session is open on this worker.
        ended: told when the ledger says that the session has ended.
        on_dead_letter: called for each item that is buried.
    """

    def __init__(
        self,
        ledger: Ledger,
        session_id: str,
        sandbox: str,
        *,
        read: ReadPlaced,
        run: Callable[[CallHeader, bytes | None], Outcome | None],
        events: Callable[[], Events | None],
        is_open: Callable[[], bool],
        ended: Callable[[str], None],
        on_dead_letter: Callable[[], None],
    ) -> None:
        self._ledger = ledger
        self._session_id = session_id
        self._owner = owner_of(session_id)
        self._sandbox = sandbox
        self._read = read
        self._run = run
        self._events = events
        self._is_open = is_open
        self._ended = ended
        self._on_dead_letter = on_dead_letter
        self.active: dict[str, Any] | None = None
        """The call that runs, as Celery's ``inspect active`` shows one."""
        threading.Thread(target=self._consume, name=f"session-{sandbox}", daemon=True).start()

    def _consume(self) -> None:
        queue = keys.session_queue(self._sandbox)
        while self._is_open():
            try:
                popped: Any = self._ledger.redis.brpop([queue], timeout=_WAIT_SECONDS)
                if popped is None:
                    continue
                if not popped[1]:
                    self._ended(self._sandbox)
                    return
                self._take(popped[1], queue)
            except RedisError as error:
                _log.warning("can't take the calls of a session: %s; trying again", error)
                time.sleep(_RETRY_SECONDS)
            except Exception:
                _log.exception("a call of a session was dropped")

    def _take(self, item: bytes, queue: str) -> None:
        try:
            raw, header = self._read(item)
            if header.session is None or header.session.id != self._session_id or owner_of(header.id) != self._owner:
                raise UnreadableError(f"no call of the session {self._session_id}", header.id)
        except UnreadableError as error:
            _log.error("dropped what is no call: queue=%s bytes=%d reason=%r", queue, len(item), str(error))
            self._ledger.bury(DeadLetter.of(item, queue, str(error)), forged=error.forged)
            self._on_dead_letter()
            return
        self.active = _shown(header)
        self._tell("task-received", header, name=header.name, args=f"<{header.payload_bytes} bytes>", kwargs="{}")
        self._tell("task-started", header)
        began = time.perf_counter()
        try:
            outcome = self._run(header, task.decode_argument(read_argument(raw)))
        finally:
            self.active = None
        if outcome is not None:
            event, fields = outcome.event()
            self._tell(event, header, runtime=time.perf_counter() - began, **fields)

    def _tell(self, event: str, header: CallHeader, **fields: Any) -> None:
        events = self._events()
        if events is not None:
            events.send(event, uuid=header.id, **fields)


def _shown(header: CallHeader) -> dict[str, Any]:
    return {
        "id": header.id,
        "name": header.name,
        "type": keys.TASK_NAME,
        "args": f"<{header.payload_bytes} bytes>",
        "kwargs": "{}",
        "hostname": header.placement.worker if header.placement else None,
        "time_start": time.time(),
        "acknowledged": True,
        "delivery_info": {},
        "worker_pid": None,
    }
