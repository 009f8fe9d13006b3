"""Carries decisions out: places calls, lets them wait, or ends them, many in one round trip."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from redis.exceptions import RedisError

from readie.ledger import NoRoom, Placed, Settled
from readie.ledger.routing import Addressed, Broken, Parked, Parking, RoutingLedger
from readie.protocol.call import CallHeader, Placement
from readie.protocol.codes import ErrorCode
from readie.traffic import TrafficCounter

from .dead_letters import DeadLetters
from .ending import Ending
from .fleet import Fleet
from .message import MessageFormat
from .needs import Needs, Nobody, Refused
from .placement import Chosen, choose
from .queued_call import QueuedCall
from .sessions import SessionCalls

log = logging.getLogger(__name__)


class MostWaiting(NamedTuple):
    """How many calls may wait."""

    calls: int
    of_one_client: int


@dataclass(slots=True)
class _NotPlaced:
    any: bool = False
    again: list[QueuedCall] = field(default_factory=list)


class Dispatcher:
    """Sends calls where they belong. Needs no state: the ledger checks every step.

    Args:
        ledger: the calls' records.
        router: this router's id.
        sessions: the calls that belong to sessions.
        fleet: the workers.
        messages: how messages are written.
        ending: tells callers whose call is refused.
        dead_letters: where calls go whose record is not one of ours.
        traffic: counts what the calls need together.
        most_waiting: how many calls may wait.
    """

    def __init__(
        self,
        ledger: RoutingLedger,
        router: str,
        *,
        sessions: SessionCalls,
        fleet: Fleet,
        messages: MessageFormat,
        ending: Ending,
        dead_letters: DeadLetters,
        traffic: TrafficCounter,
        most_waiting: MostWaiting,
    ) -> None:
        self._ledger = ledger
        self._router = router
        self._sessions = sessions
        self._fleet = fleet
        self._messages = messages
        self._ending = ending
        self._dead_letters = dead_letters
        self._traffic = traffic
        self._most_waiting = most_waiting

    def dispatch(self, calls: Sequence[QueuedCall]) -> None:
        """Settle every call; one that waits already and can't run now is left as it is."""
        try:
            self._dispatch(calls)
        except RedisError:
            raise
        except Exception:
            # Whatever it is, it must not come back with these calls for ever.
            log.exception("unexpected, each call is tried alone: calls=%d", len(calls))
            for call in calls:
                self._dispatch_alone(call)

    def _dispatch_alone(self, call: QueuedCall) -> None:
        try:
            self._dispatch([call])
        except RedisError:
            raise
        except Exception as error:
            log.exception("unexpected: call=%s", call.id)
            self._bury(call, f"the router failed on it: {error!r}")

    def _dispatch(self, calls: Sequence[QueuedCall]) -> None:
        started = time.monotonic()
        admission = self._sessions.admit(calls)
        for call, refused in admission.refused:
            self._refuse(call, refused)
        for call, why in admission.broken:
            self._bury(call, why)
        pending = admission.to_place
        while pending:
            self._fleet.look_if_old()
            chosen: list[tuple[QueuedCall, Chosen]] = []
            nobody: list[tuple[QueuedCall, str]] = []
            again: list[QueuedCall] = []
            for call in pending:
                decision = choose(call.message.header, self._fleet.candidates)
                match decision:
                    case Chosen():
                        decision.worker.take(call.memory_bytes, decision.checkpoint_id)
                        chosen.append((call, decision))
                    case Nobody(why):
                        if not call.group:
                            nobody.append((call, why))
                    case Refused() if call.patient and decision.for_want_of_workers:
                        pass
                    case Refused() if self._fleet.seen_at < started:
                        # What can't ever be is only said from what is there now.
                        again.append(call)
                    case Refused():
                        self._refuse(call, decision)
            not_placed = self._place(chosen)
            # Slots counted for calls that did not take them are free: who waits because of them is looked at again.
            self._park(nobody, capacity="" if not_placed.any else self._fleet.capacity)
            pending = again + not_placed.again
            if pending:
                self._fleet.look()

    def _place(self, chosen: Sequence[tuple[QueuedCall, Chosen]]) -> _NotPlaced:
        not_placed = _NotPlaced()
        if not chosen:
            return not_placed
        addressed = [self._address(call, decision) for call, decision in chosen]
        outcomes = self._ledger.place_all(self._router, addressed)
        for (call, decision), (header, _, _), outcome in zip(chosen, addressed, outcomes, strict=True):
            if isinstance(outcome, Placed):
                _log_placed(header)
                # Under the worker's flavor, which exists, whatever the client's header says.
                self._traffic.count(decision.worker.announcement.flavor, header.hints)
                continue
            self._fleet.candidates.give_back(decision.worker, call.memory_bytes, decision.checkpoint_id)
            not_placed.any = True
            match outcome:
                case Settled(None):
                    log.info("passed over, it is past being placed: call=%s", call.id)
                case Settled(int(attempt)):
                    call.attempt = attempt + 1
                    not_placed.again.append(call)
                case NoRoom():
                    not_placed.again.append(call)
                case Broken(reason):
                    self._bury(call, f"broken record: {reason}")
        return not_placed

    def _address(self, call: QueuedCall, decision: Chosen) -> Addressed:
        announcement = decision.worker.announcement
        placement = Placement(
            worker=announcement.name,
            incarnation=announcement.incarnation,
            attempt=call.attempt,
            checkpoint_id=decision.checkpoint_id,
            reason=decision.reason,
            predicted_seconds=decision.predicted_seconds,
            route_seconds=time.monotonic() - call.taken_at,
            restarted=call.restarted,
        )
        return Addressed(*self._messages.readdress(call.message, placement), call.taken)

    def _park(self, nobody: Sequence[tuple[QueuedCall, str]], capacity: str) -> None:
        if not nobody:
            return
        parkings = [
            Parking(
                call.id,
                call.taken,
                Needs.of(header := call.message.header).group(),
                header.options.priority,
                why,
                header.client,
            )
            for call, why in nobody
        ]
        most = self._most_waiting
        outcomes = self._ledger.park_all(self._router, capacity, most.calls, parkings, most.of_one_client)
        for (call, why), outcome in zip(nobody, outcomes, strict=True):
            match outcome:
                case Parked.WAITS:
                    log.info("waits: call=%s reason=%r", call.id, why)
                case Parked.QUEUE_FULL:
                    message = f"{most.calls} calls wait already, as many as may (READIE_MAX_QUEUED); {why}"
                    self._refuse(call, Refused(ErrorCode.RESOURCE_EXHAUSTED, message))
                case Parked.CLIENT_FULL:
                    message = (
                        f"{most.of_one_client} calls of the client {call.message.header.client!r} wait already, as "
                        f"many as may (READIE_MAX_QUEUED_PER_CLIENT); {why}"
                    )
                    self._refuse(call, Refused(ErrorCode.RESOURCE_EXHAUSTED, message))
                case Broken(reason):
                    self._bury(call, f"broken record: {reason}")

    def _refuse(self, call: QueuedCall, refused: Refused) -> None:
        self._ending.fail(call.id, call.item, refused.code, refused.message)
        if not call.group:
            self._ledger.settle(self._router, call.item)
        log.info("refused: call=%s code=%s message=%r", call.id, refused.code, refused.message)

    def _bury(self, call: QueuedCall, reason: str) -> None:
        self._dead_letters.bury(call.item, reason, call.id)
        if call.group:
            self._ledger.drop_waiting(call.id, call.group)


def _log_placed(header: CallHeader) -> None:
    placement = header.placement
    assert placement is not None
    log.info(
        "placed: call=%s worker=%s checkpoint=%s attempt=%d route_ms=%.2f reason=%r",
        header.id,
        placement.worker,
        placement.checkpoint_id,
        placement.attempt,
        placement.route_seconds * 1000,
        placement.reason,
    )
