"""Publishes what a call prints and yields while it runs, and hears how far its reader is."""

import contextlib
import logging
import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

from redis.exceptions import RedisError

from readie.ledger.refusals import about_the_call
from readie.ledger.streams import WINDOW_BYTES, WINDOW_VALUES, Progress, StreamLedger
from readie.protocol.call import CallHeader
from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import Failure
from readie.protocol.payload import Buffer
from readie.protocol.signing import Keyring, yielded_part

from .control import RunningCall, StoppedError
from .sandbox.conversation import Credit

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

READER_SECONDS: Final = 300.0
"""How long a call that can't go on without its reader waits for one whose client is not connected any more."""
_RETRY_SECONDS: Final = 0.5
MOVED_ON: Final = Failure(
    code=ErrorCode.WORKER_LOST, message="the call has moved on while this worker could not be reached"
)


class MovedOnError(Exception):
    """The attempt is not the one that runs any more: nobody will hear of it."""


class CallOutput:
    """Listens to one call for its thread; nothing is asked of Redis before there is something to say.

    While Redis can't be reached it waits, and the function with it. Only ``wake_up`` may be called from other threads.

    Args:
        ledger: what it writes to.
        header: the call's, with its placement.
        call: tells that it was cancelled, and hears of news.
        uphold: says in Redis that the attempt runs here; whether it does. Redis may have lost its last moments.
        keyring: what values are signed with.
        keep_bytes: how much of the end of the output is kept.
        reader_seconds: see ``READER_SECONDS``.
    """

    def __init__(
        self,
        ledger: StreamLedger,
        header: CallHeader,
        call: RunningCall,
        uphold: Callable[[], bool],
        keyring: Keyring,
        *,
        keep_bytes: int,
        reader_seconds: float = READER_SECONDS,
    ) -> None:
        assert header.placement is not None
        self._ledger = ledger
        self._id = header.id
        self._attempt = header.placement.attempt
        self._call = call
        self._uphold = uphold
        self._keyring = keyring
        self._keep_bytes = keep_bytes
        self._reader_seconds = reader_seconds
        timeout = header.options.timeout_seconds
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self.printed_bytes = 0
        self.yielded_values = 0
        self._yielded_bytes = 0
        self._reader_gone_at: float | None = None
        self.credit: Credit | None = None
        self._event: int | None = None
        if header.streams:
            self.credit = Credit(WINDOW_VALUES, WINDOW_BYTES)
            self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            call.on_news(self._wake_up)

    def close(self) -> None:
        """Hear of nothing any more."""
        if self._event is not None:
            self._call.on_news(None)
            os.close(self._event)
            self._event = None

    @property
    def stopped(self) -> bool:
        """Whether the function was told that no more values are wanted."""
        return self.credit is not None and self.credit.stop

    def fileno(self) -> int:
        """Return what can be read from once there may be news of the reader."""
        assert self._event is not None
        return self._event

    def look(self) -> None:
        """Look how far the reader is."""
        assert self._event is not None
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event)
        self._hear(
            self._tell(
                lambda: self._ledger.look_at_reader(self._id, self._attempt, self.yielded_values, self._yielded_bytes)
            )
        )

    def printed(self, output: bytes) -> None:
        """Publish a piece of output."""
        self._tell(
            lambda: self._ledger.publish_output(self._id, self._attempt, self.printed_bytes, output, self._keep_bytes)
        )
        self.printed_bytes += len(output)

    def yielded(self, container: Buffer) -> None:
        """Publish a value."""
        self.yielded_values += 1
        self._yielded_bytes += len(container)
        sealed = self._keyring.seal(self._id, yielded_part(self._attempt, self.yielded_values), container)
        self._hear(
            self._tell(
                lambda: self._ledger.publish_value(
                    self._id, self._attempt, self.yielded_values, sealed, self._yielded_bytes
                )
            )
        )

    def _hear(self, progress: Progress) -> None:
        credit = Credit(progress.taken + WINDOW_VALUES, progress.taken_bytes + WINDOW_BYTES, progress.stop)
        spent = self.yielded_values >= credit.values or self._yielded_bytes >= credit.bytes
        now = time.monotonic()
        if progress.reader_lives or not spent:
            self._reader_gone_at = None
        elif self._reader_gone_at is None:
            self._reader_gone_at = now
        elif now - self._reader_gone_at >= self._reader_seconds:
            _log.info("call=%s: its reader is gone, the function is stopped", self._id)
            credit = Credit(credit.values, credit.bytes, stop=True)
        self.credit = credit

    def _wake_up(self) -> None:
        assert self._event is not None
        os.eventfd_write(self._event, 1)

    def _tell(self, tell: Callable[[], _T | None]) -> _T:
        """Return the answer of ``tell``, which is false when the attempt does not run for all that Redis knows."""
        while not (answer := self._patiently(tell)):
            if not self._patiently(self._uphold):
                raise MovedOnError
        return answer

    def _patiently(self, ask: Callable[[], _T]) -> _T:
        while True:
            try:
                return ask()
            except RedisError as error:
                if about_the_call(error):
                    raise
                if self._call.cancelled:
                    raise StoppedError from error
                if self._deadline is not None and time.monotonic() >= self._deadline:
                    raise TimeoutError("Redis can't be reached") from error
                _log.warning("call=%s: can't publish what it prints or yields: %s; trying again", self._id, error)
                time.sleep(_RETRY_SECONDS)
