"""Waiting for the ends of calls: one connection and one thread, however many calls are pending."""

import contextlib
import logging
import secrets
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field

from redis import Redis
from redis.exceptions import RedisError

from .errors import ReadieError, ResultExpiredError
from .ledger import Ledger
from .ledger.result import decode_result
from .protocol import keys
from .protocol.envelope import Envelope
from .protocol.owner import owned
from .subscription import Subscription

_log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.5
_NEWS = keys.NEWS.encode()


@dataclass(slots=True)
class _Pending:
    subscription: int
    """Number of the subscription that was current when the wait began."""
    submitted: bool = False
    future: Future[Envelope] = field(default_factory=Future)


class Replies:
    """Hears of calls' ends on this client's own channel.

    Notices can be missed while the connection is broken, so every (re)subscription is followed by a look at the
    submitted calls, and a call whose submission overlapped a new subscription is looked at by its submitter.
    ``_pending``, ``_news``, ``_subscription`` and ``_thread`` are guarded by ``_lock``; the rest never changes.
    """

    def __init__(self, redis: Redis, ledger: Ledger, owner: str = "") -> None:
        self.client_id = owned(owner, secrets.token_hex(8))
        self._redis = redis
        self._ledger = ledger
        self._lock = threading.Lock()
        self._pending: dict[str, _Pending] = {}
        self._news: dict[str, Future[None]] = {}
        self._subscription = 0
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def expect(self, call_id: str) -> Future[Envelope]:
        """Return a future of the call's end. Precedes the submission; ``submitted`` or ``forget`` follows it."""
        with self._lock:
            pending = self._pending.get(call_id)
            if pending is None:
                pending = self._pending[call_id] = _Pending(self._subscription)
            if self._thread is None:
                self._thread = threading.Thread(target=self._listen, name="readie-replies", daemon=True)
                self._thread.start()
        return pending.future

    def submitted(self, call_id: str) -> None:
        """The call is in Redis now."""
        with self._lock:
            pending = self._pending.get(call_id)
            if pending is None:
                return
            pending.submitted = True
            missed = pending.subscription != self._subscription
        if missed:
            with contextlib.suppress(RedisError):  # a broken connection means a new subscription, which looks again
                self.look_up(call_id)

    def news(self, call_id: str) -> Future[None]:
        """Return a future of the next word about a call: something to be read, its end, or that a word may be missed.

        Asked for before the look that finds nothing; of a call that has ended it is done.
        """
        with self._lock:
            if call_id in self._pending:
                return self._news.setdefault(call_id, Future())
        over: Future[None] = Future()
        over.set_result(None)
        return over

    def forget(self, call_id: str) -> None:
        """Stop waiting for a call that was never submitted."""
        with self._lock:
            self._pending.pop(call_id, None)
            self._news.pop(call_id, None)

    def look_up(self, call_id: str) -> None:
        """Resolve a pending call whose end is stored already; otherwise its end will be told.

        Raises:
            RedisError: Redis can't be asked.
        """
        watch = self._ledger.watch(call_id, self.client_id)
        if watch.result is not None:
            self._read_result(call_id, watch.result)
        elif watch.state is None or watch.state.ended:
            with self._lock:
                pending = self._pending.pop(call_id, None)
            if pending is not None:
                pending.future.set_exception(
                    ResultExpiredError(
                        f"call {call_id}: Redis does not know it. Its result is no longer kept, or there never was "
                        "such a call, or Redis was started again without its last moments; the function may have run"
                    )
                )
            self._tell(call_id)

    def close(self) -> None:
        """Stop the thread."""
        self._closed.set()
        thread = self._thread
        if thread is not None:
            with contextlib.suppress(RedisError):
                self._redis.publish(keys.replies(self.client_id), b"")
            thread.join()

    def _hear(self, word: bytes) -> None:
        if word.startswith(_NEWS):
            self._tell(word.removeprefix(_NEWS).decode(errors="replace"))
        else:
            self._read_notice(word)

    def _tell(self, *call_ids: str) -> None:
        with self._lock:
            told = [future for call_id in call_ids if (future := self._news.pop(call_id, None))]
        for future in told:
            future.set_result(None)

    def _read_notice(self, notice: bytes) -> None:
        try:
            self._resolve(decode_result(notice))
        except ValueError:
            _log.warning("an unreadable notice on this client's reply channel was dropped")
            # It may have been an end; what is stored tells of which call.
            self._look_up_all()

    def _read_result(self, call_id: str, result: bytes) -> None:
        try:
            envelope = decode_result(result)
        except ValueError as error:
            with self._lock:
                pending = self._pending.pop(call_id, None)
            if pending is not None:
                pending.future.set_exception(
                    ReadieError(
                        f"call {call_id} has ended, but how can't be read here; if the cluster runs a newer Readie, "
                        f"upgrade this client: {error}"
                    )
                )
            self._tell(call_id)
        else:
            self._resolve(envelope)

    def _resolve(self, envelope: Envelope) -> None:
        with self._lock:
            pending = self._pending.pop(envelope.id, None)
        if pending is not None:
            pending.future.set_result(envelope)
        self._tell(envelope.id)

    def _look_up_all(self) -> None:
        with self._lock:
            submitted = [call_id for call_id, pending in self._pending.items() if pending.submitted]
            listened = list(self._news)
        for call_id in submitted:
            self.look_up(call_id)
        self._tell(*listened)

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                with Subscription(self._redis, keys.replies(self.client_id)) as subscription:
                    while not self._closed.is_set():
                        message = subscription.hear()
                        if message is None:
                            with self._lock:
                                self._subscription += 1
                            self._look_up_all()
                        elif message:
                            self._hear(message)
            except RedisError as error:
                _log.info("waiting for results: %s; trying again", error)
                self._closed.wait(_RETRY_SECONDS)
