"""A submitted call, from this process or re-attached to by its id."""

import asyncio
import concurrent.futures
import os
import threading
import time
from collections.abc import Generator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from .errors import SerializationError
from .event_loop import refuse_in_running_loop
from .options import check_timeout
from .outcome import exception_of
from .pickling import load_value
from .printing import PrintedCall
from .protocol.envelope import CallState, Envelope, Report

if TYPE_CHECKING:
    from .client import Client
    from .logs import Logs
    from .reading import Reading
    from .sessions import Session
    from .stream import Stream

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class CallStatus:
    """Where a call is; ``str()`` of it reads ``queued (no worker is running)``.

    Example:
        ```python
        if call.status().state == "queued":
            print("still waits:", call.status().detail)
        ```
    """

    state: CallState
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.state} ({self.detail})" if self.detail else str(self.state)


@dataclass(frozen=True, slots=True)
class Submission:
    """What this process measured when it submitted a call (``time.perf_counter`` seconds)."""

    began: float
    serialized: float
    accepted: float


class Call(Generic[R_co]):
    """A call that was accepted; it ends in one value or one error. ``await call`` gives the value in an event loop.

    Attributes:
        id: unique; :func:`readie.get_call` finds the call by it from any process.

    Example:
        ```python
        call = mean.spawn(rows)
        print(call.id, call.status())
        value = call.result(timeout=60)
        ```
    """

    def __init__(
        self,
        client: "Client",
        call_id: str,
        end: "Future[Envelope]",
        submission: Submission | None = None,
        session: "Session | None" = None,
    ) -> None:
        self.id = call_id
        self._client = client
        self._end = end
        self._submission = submission
        self._session = session
        self._outcome: tuple[bool, Any] | None = None
        self._report: Report | None = None
        self._printed: PrintedCall | None = None
        self._enter_process()

    def _enter_process(self) -> None:
        self._pid = os.getpid()
        # Guards what the first reader of the result leaves for the others.
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<readie.Call {self.id}>"

    def __await__(self) -> Generator[Any, None, R_co]:
        return self.aresult().__await__()

    @property
    def end(self) -> "Future[Envelope]":
        """Done as soon as the call has ended, for :mod:`concurrent.futures`; its result is no value of the call's."""
        if self._pid != os.getpid():
            # What resolves the parent's future is a thread that a forked child does not have.
            self._enter_process()
            self._end = self._client.attach(self.id)
        return self._end

    @property
    def reading(self) -> "Reading":
        """What readers of this call's output and values ask."""
        return self._client.reading

    @property
    def ended(self) -> bool:
        """Whether this process has heard of the call's end."""
        return self.end.done()

    def logs(self, *, follow: bool = False, offset: int = 0) -> "Logs":
        """Return what the call has printed, line by line, standard output and error of all its processes.

        The last 8 MiB are kept (the worker's ``READIE_LOG_BYTES``), as long as the result is::

            for line in call.logs(follow=True):
                print(line)

        Args:
            follow: wait for more until the call has ended; otherwise what is there by now.
            offset: bytes to leave out; :attr:`Logs.offset <readie.Logs.offset>` of an earlier reader, in any process.

        Raises:
            ClusterUnavailableError: while iterating: Redis can't be reached.
        """
        from .logs import Logs  # noqa: PLC0415 - most calls do without

        return Logs(self, offset, follow=follow)

    def stream(self) -> "Stream[Any]":
        """Return what the call of a generator function yields, from the first value that no reader has gone past.

        One reader at a time. Unlike the iterator that calling the function gives, leaving it does not stop the call:
        another one goes on where it was, in this process or in another. A call whose values nobody reads stands still
        when 32 of them wait.
        """
        from .stream import Stream  # noqa: PLC0415 - most calls do without

        return Stream(lambda: self, owns=False)

    def print_output(self, name: str, news: "Future[None]") -> None:
        """Print what the call prints to standard error, from ``news`` of it on; ``name`` begins each line."""
        self._printed = PrintedCall(self, name, news)

    @property
    def printed_bytes(self) -> int | None:
        """How much an ended call has printed in all, ``None`` when that has to be asked."""
        if self.end.exception() is not None:
            return None
        report = self.end.result().report
        return report.output_bytes if report.attempt == 1 else None

    def status(self) -> CallStatus:
        """Return where the call is now.

        Raises:
            ResultExpiredError: its record is no longer kept.
            ClusterUnavailableError: Redis can't be reached.
        """
        return self._client.status(self.id)

    def cancel(self) -> bool:
        """Take the call back, or stop it by killing its sandbox; returns at once.

        Returns:
            ``True``: it ends in :class:`~readie.CallCancelledError` now, whatever it has done so far. ``False``: it had
            ended, and nothing changes.

        Raises:
            ClusterUnavailableError: Redis can't be reached.
        """
        return self._client.cancel(self.id)

    def result(self, timeout: float | None = None) -> R_co:
        """Wait for the end; return the value or raise the error.

        Args:
            timeout: longest wait in seconds; the call itself goes on.

        Raises:
            ConfigurationError: a timeout that is no number.
            TimeoutError: the call had not ended after ``timeout`` seconds.
            RunningLoopError: it has not ended, and this is an event loop: ``await call``.
            RemoteError: the function raised; also an instance of the function's own exception type.
            ReadieError: anything else that kept the call from a value.
        """
        return self._open(self._wait(timeout))

    async def aresult(self) -> R_co:
        """Like :meth:`result`, without blocking the event loop."""
        envelope = await asyncio.shield(asyncio.wrap_future(self.end))
        return await asyncio.to_thread(self._open, envelope)

    def report(self, timeout: float | None = None) -> Report:
        """Wait for the end and return how the call went: worker, start, checkpoint, phase timings in seconds.

        Raises:
            TimeoutError: the call had not ended after ``timeout`` seconds.
        """
        envelope = self._wait(timeout)
        if self._report is not None:
            return self._report
        return envelope.report.model_copy(update={"total_seconds": envelope.ended_at - envelope.submitted_at})

    def _wait(self, timeout: float | None) -> Envelope:
        check_timeout(timeout)
        end = self.end
        if not end.done():
            refuse_in_running_loop("waiting for a call", "await call")
        try:
            return end.result(timeout)
        except concurrent.futures.TimeoutError:
            if end.done():
                raise
            raise TimeoutError(
                f"call {self.id} has not ended after {timeout} s; it goes on ({self.status()})"
            ) from None

    def _open(self, envelope: Envelope) -> R_co:
        if self._printed is not None:
            self._printed.wait()
        with self._lock:
            if self._outcome is None:
                value = self._client.fetch_value(envelope)
                if envelope.failure is None:
                    self._outcome = self._loaded(cast("bytes | bytearray", value))
                else:
                    self._outcome = (False, exception_of(envelope.failure, value))
                self._report = self._complete_report(envelope)
                if self._session is not None and envelope.report.ignored_globals:
                    self._session.warn_of(envelope.report.ignored_globals)
            succeeded, outcome = self._outcome
        if not succeeded:
            raise outcome
        return cast("R_co", outcome)

    def _loaded(self, value: bytes | bytearray) -> tuple[bool, Any]:
        try:
            return True, load_value(value)
        except SerializationError as error:
            return False, SerializationError(f"call {self.id}: its value {error}")

    def _complete_report(self, envelope: Envelope) -> Report | None:
        """Add the client's own phases, which only the submitting process knows."""
        submission = self._submission
        if submission is None:
            return None
        total = time.perf_counter() - submission.began
        serialize, submit = submission.serialized - submission.began, submission.accepted - submission.serialized
        server = envelope.ended_at - envelope.submitted_at
        # What a short call takes elsewhere overlaps with the answer to its submission.
        submit = min(submit, max(0.0, total - serialize - server))
        phases = {
            "serialize": serialize,
            "submit": submit,
            **_with_all_of_store(envelope),
            "return": max(0.0, total - serialize - submit - server),
        }
        return envelope.report.model_copy(update={"phases": phases, "total_seconds": total})


def _with_all_of_store(envelope: Envelope) -> dict[str, float]:
    """Return the server's phases with the rest of ``store``: a worker writes its report before the result is stored."""
    phases = envelope.report.phases
    rest = envelope.ended_at - envelope.submitted_at - sum(phases.values())
    return {**phases, "store": phases["store"] + max(0.0, rest)} if "store" in phases else phases
