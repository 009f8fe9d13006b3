"""Compares the calls that this worker holds in Redis with those that it runs, and puts right what differs."""

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from redis.exceptions import RedisError

from readie.ledger.holding import Held, HoldingLedger
from readie.monitoring.health import Health
from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import CallState, Envelope, Failure, Report

from .control import RunningCalls
from .ends import End, Ends
from .metrics import WorkerMetrics
from .output import MOVED_ON

_log = logging.getLogger(__name__)

_LOOKS: Final = 3
"""What is found this many times in a row is no moment between two steps."""
_HOPELESS_LOOKS: Final = 15


class Reconciliation:
    """Looks every few seconds, in a thread of its own: Celery's event loop stands still while it connects or stops.

    What can differ: this worker was away for so long that its calls were given to others; Redis was started again
    without its last moments and does not know what was begun or ended in them; a message was lost on its way from the
    queue to this worker; this worker does not hear its queue.

    Args:
        ledger: the calls' records.
        calls: what runs here.
        ends: what has ended here.
        worker: this worker's name.
        incarnation: this process.
        slots: calls that run at once.
        renew: renews this worker's lease, which is done at every look.
        every_seconds: between two looks.
        reconnect: has the consumer of this worker's queue connect anew; called from this thread.
        health: is told that this worker goes on.
        metrics: counts what is put right.
    """

    def __init__(
        self,
        ledger: HoldingLedger,
        calls: RunningCalls,
        ends: Ends,
        *,
        worker: str,
        incarnation: str,
        slots: int,
        renew: Callable[[], None],
        every_seconds: float,
        reconnect: Callable[[], None],
        health: Health,
        metrics: WorkerMetrics,
    ) -> None:
        self._ledger = ledger
        self._calls = calls
        self._ends = ends
        self._worker = worker
        self._incarnation = incarnation
        self._slots = slots
        self._renew = renew
        self._every_seconds = every_seconds
        self._reconnect = reconnect
        self._health = health
        self._metrics = metrics
        self._run_id = ""
        self._suspects: Counter[tuple[str, int, CallState]] = Counter()
        self._entered = 0
        self._deaf_looks = 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="reconciliation", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()
        if self._thread.is_alive():
            # It may be waiting for an answer of a Redis that is not there.
            self._thread.join(timeout=2)

    def look(self) -> None:
        """Compare once."""
        self._tell_ends()
        self._uphold()
        held = self._ledger.held(self._worker)
        running = {(call.id, call.attempt) for call in self._calls.all()}
        strange = [
            call
            for call in held
            if call.incarnation == self._incarnation and (call.call_id, call.attempt) not in running
        ]
        queue = self._ledger.queue(self._worker)
        queued = {_delivery_tag(item) for item in queue}
        strange = [call for call in strange if f"{call.call_id}:{call.attempt}" not in queued]
        self._settle(strange)
        self._listen(queue)

    def _work(self) -> None:
        while not self._closed.wait(self._every_seconds):
            try:
                # One that hears nothing, however often it connects, is as good as lost.
                if self._deaf_looks < _HOPELESS_LOOKS:
                    self._health.turned()
                    self._renew()
                self.look()
            except RedisError as error:
                _log.warning("can't compare this worker's calls with their records: %s; trying again", error)
            except Exception:
                _log.exception("can't compare this worker's calls with their records")

    def _tell_ends(self) -> None:
        """Tell a Redis that was started again how the latest calls ended."""
        run_id = self._ledger.run_id()
        if run_id == self._run_id:
            return
        if self._run_id:
            for end in self._ends.latest():
                self._ends.store_again(end)
                self._metrics.recovered("end_told_again")
        self._run_id = run_id

    def _uphold(self) -> None:
        """Say what runs here, and stop what has moved on."""
        for call in self._calls.all():
            if (
                call.runs
                and not call.stopped
                and not self._ledger.uphold(call.id, call.attempt, self._worker, self._incarnation)
                and call.runs
            ):
                _log.warning("call=%s: attempt %d has moved on, its sandbox is killed", call.id, call.attempt)
                call.stop(MOVED_ON)
                self._metrics.recovered("stale_attempt_killed")

    def _settle(self, strange: Sequence[Held]) -> None:
        """Settle what is held in Redis and is neither run here nor on the queue, once it was so for some looks."""
        found = {(call.call_id, call.attempt, call.state) for call in strange}
        self._suspects = Counter({suspect: self._suspects[suspect] + 1 for suspect in found})
        for call_id, attempt, state in [suspect for suspect, looks in self._suspects.items() if looks >= _LOOKS]:
            del self._suspects[call_id, attempt, state]
            if state is CallState.PLACED:
                outcome = self._ledger.requeue(call_id, self._worker, self._incarnation)
                self._metrics.recovered("message_lost")
                _log.warning("call=%s: its message was lost, given back: %s", call_id, outcome)
                continue
            self._metrics.recovered("call_lost")
            _log.error("call=%s: attempt %d is not running here any more, ended as lost", call_id, attempt)
            failure = Failure(code=ErrorCode.WORKER_LOST, message=f"the worker {self._worker} lost track of the call")
            report = Report(worker=self._worker, attempt=attempt)
            end = End(Envelope(id=call_id, state=CallState.FAILED, failure=failure, report=report), attempt, b"")
            self._ends.store_again(self._ends.of(call_id, attempt) or end)

    def _listen(self, queue: Sequence[bytes]) -> None:
        """Have the queue's consumer connect anew when it hears nothing of what is there for it."""
        entered, self._entered = self._entered, self._calls.entered
        deaf = bool(queue) and entered == self._entered and len(self._calls.all()) < self._slots
        self._deaf_looks = self._deaf_looks + 1 if deaf else 0
        if deaf and self._deaf_looks % _LOOKS == 0:
            _log.error("this worker does not hear its queue, where %d messages are: connecting anew", len(queue))
            self._metrics.recovered("queue_not_heard")
            self._reconnect()


def _delivery_tag(item: bytes) -> str:
    """Return what tells which attempt of which call a message is of."""
    try:
        return str(json.loads(item)["properties"]["delivery_tag"])
    except (ValueError, TypeError, KeyError):
        return ""
