"""Finds what was lost and lets the ledger decide about it. Any number of routers may do it at once."""

import logging
import time
from collections.abc import Sequence
from typing import Final

from readie.failures import retry_after
from readie.ledger.routing import Broken, Record
from readie.ledger.sessions import SessionLedger
from readie.protocol.call import CallHeader
from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import CallState, Envelope, Failure, Report
from readie.protocol.reading import UnreadableError, read
from readie.protocol.session import SessionState

from .metrics import RouterMetrics

log = logging.getLogger(__name__)

_AT_ONCE: Final = 256
_PENDING_AT_ONCE: Final = 2000
_LOST_AFTER_SECONDS: Final = 15
"""A message that is in no queue for this long is lost."""
_BEGUN_WITHIN_SECONDS: Final = 30.0
"""A worker has a slot for every call it is given, so it begins at once or never."""
_LATEST_LOOK_SECONDS: Final = 0.5
"""A call that is to run again sooner than any that is known of is noticed this much too late at the most."""
_NOBODY: Final = "-"
"""No worker's incarnation."""
_MOST_ATTEMPTS: Final = 10
"""A call whose message brings down every worker that gets it must end, too."""


class Recovery:
    """Finds what has been lost: routers and workers whose lease has ended, workers started again, messages.

    Args:
        ledger: the calls' records, which decide; every step checks attempt or incarnation there.
        keep_seconds: how long the result of a call stays that was lost with its worker.
        away_seconds: how long a worker without a lease may take to renew it before what it had begun is lost. When
            Redis' clock jumps ahead, every lease ends at once.
        metrics: counts what is put right.
    """

    def __init__(
        self, ledger: SessionLedger, keep_seconds: int, away_seconds: float = 0.0, *, metrics: RouterMetrics
    ) -> None:
        self._ledger = ledger
        self._keep_seconds = keep_seconds
        self._away_seconds = away_seconds
        self._metrics = metrics
        self._away_since: dict[str, float] = {}
        """Since when each worker has had no lease (monotonic clock, seconds)."""
        self._checked: dict[str, str] = {}
        """Incarnation of each worker whose calls of earlier incarnations are known to be settled."""
        self._readmitted_to = "0"

    def sweep_routers(self) -> None:
        """Give back what dead routers had taken."""
        for router in self._ledger.dead_routers():
            count = self._ledger.give_back(router, only_if_dead=True)
            if count is not None:
                self._metrics.recovered("router_lost")
                log.warning("router lost, its messages went back: router=%s messages=%d", router, count)

    def sweep_messages(self) -> None:
        """Send messages again that were lost on their way to a router."""
        self._readmitted_to, call_ids = self._ledger.readmit(self._readmitted_to, _LOST_AFTER_SECONDS, _PENDING_AT_ONCE)
        for call_id in call_ids:
            self._metrics.recovered("message_sent_again")
            log.warning("message lost, sent again: call=%s", call_id)

    def sweep_workers(self) -> None:
        """Recover the calls of workers that are gone, and of earlier incarnations of those started again."""
        self._ledger.bound_leases()
        incarnations = self._ledger.incarnations()
        now = time.monotonic()
        self._away_since = {
            worker: self._away_since.get(worker, now) for worker, living in incarnations.items() if living is None
        }
        for worker, incarnation in incarnations.items():
            if self._checked.get(worker) != incarnation or incarnation is None:
                self._lose_sessions(worker, incarnation)
            if incarnation is None:
                lost = now - self._away_since[worker] >= self._away_seconds
                self._recover(worker, self._ledger.held_calls(worker), begun=lost)
                if self._ledger.forget_worker(worker):
                    self._metrics.recovered("worker_lost")
                    log.warning("worker lost: worker=%s", worker)
            elif self._checked.get(worker) != incarnation:
                self._recover(worker, self._ledger.held_calls(worker))
                self._checked[worker] = incarnation
        self._checked = {worker: checked for worker, checked in self._checked.items() if worker in incarnations}

    def _lose_sessions(self, worker: str, living: str | None) -> None:
        """End the sessions of a worker that is gone, or of the processes of that name before the living one."""
        for session_id in self._ledger.sessions_of(worker):
            # The living one may have come back meanwhile: the ledger looks at whose the session is.
            if self._ledger.end_session(
                session_id,
                SessionState.LOST,
                f"was lost with its worker {worker}",
                not_incarnation=living or self._ledger.incarnations([worker])[worker] or _NOBODY,
            ):
                self._metrics.recovered("session_lost")
                log.warning("lost: session=%s worker=%s", session_id, worker)

    def sweep_never_begun(self) -> None:
        """Take calls back that a living worker has not begun."""
        workers = [worker for worker, incarnation in self._ledger.incarnations().items() if incarnation is not None]
        held = self._ledger.held_since(workers, self._ledger.now() - _BEGUN_WITHIN_SECONDS)
        for worker, call_ids in held.items():
            self._recover(worker, call_ids, never_begun=True)

    def _recover(self, worker: str, call_ids: Sequence[str], *, never_begun: bool = False, begun: bool = True) -> None:
        for start in range(0, len(call_ids), _AT_ONCE):
            some = call_ids[start : start + _AT_ONCE]
            records = self._ledger.records(some)
            # Asked after the records: an incarnation that had a call then and does not live now never lives again.
            living = self._ledger.incarnations([worker])[worker]
            for call_id, record in zip(some, records, strict=True):
                if isinstance(record, Broken):
                    self._ledger.drop_held(worker, call_id)
                elif record.worker != worker or record.incarnation != living:
                    if begun or record.worker != worker or record.state is not CallState.RUNNING:
                        self._settle(worker, call_id, record)
                elif never_begun and record.state is not CallState.RUNNING:
                    # Its message was lost between the queue and the worker, who takes it off without a safe copy.
                    self._settle(worker, call_id, record)

    def _settle(self, worker: str, call_id: str, record: Record) -> None:
        here = record.worker == worker
        if here and record.state is CallState.RUNNING:
            self._lose(
                record,
                call_id,
                f"the worker {worker} was lost while it ran the call (attempt {record.attempt}); "
                "the function may have run in part",
            )
        elif here and record.state is CallState.PLACED and record.attempt >= _MOST_ATTEMPTS:
            self._lose(record, call_id, f"{record.attempt} times a worker got the call and was lost before it began")
        else:
            outcome = self._ledger.requeue(call_id, worker, record.incarnation)
            self._metrics.recovered("call_taken_back")
            log.info("taken back from its worker: call=%s worker=%s outcome=%s", call_id, worker, outcome)

    def sweep_delayed(self) -> float:
        """Queue the calls that are to run again now; returns after how many seconds to look again."""
        left = self._ledger.release_delayed(_AT_ONCE)
        return _LATEST_LOOK_SECONDS if left is None else min(left, _LATEST_LOOK_SECONDS)

    def _retry(self, record: Record, call_id: str, failure: Failure) -> bool:
        """Have a call that was lost with its worker run again, if its caller allowed that."""
        (full,) = self._ledger.records([call_id], messages=True)
        if isinstance(full, Broken):
            return False
        try:
            _, header = read(full.message)
        except UnreadableError:
            return False
        policy = header.options.retries if isinstance(header, CallHeader) else None
        retry = retry_after(policy, record.begun, failure)
        return retry is not None and self._ledger.retry(call_id, record.attempt, *retry)

    def _lose(self, record: Record, call_id: str, message: str) -> None:
        failure = Failure(code=ErrorCode.WORKER_LOST, message=message)
        if record.state is CallState.RUNNING and self._retry(record, call_id, failure):
            self._metrics.recovered("call_to_run_again")
            log.warning("lost, to run again: call=%s worker=%s attempt=%d", call_id, record.worker, record.attempt)
            return
        envelope = Envelope(
            id=call_id,
            state=CallState.FAILED,
            failure=failure,
            submitted_at=record.submitted_at,
            report=Report(worker=record.worker, attempt=record.attempt),
        )
        if self._ledger.finish(envelope, attempt=record.attempt, keep_seconds=self._keep_seconds):
            self._metrics.recovered("call_lost")
            log.warning("lost: call=%s worker=%s attempt=%d", call_id, record.worker, record.attempt)
