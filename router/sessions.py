"""Brings the calls of sessions to where their session is, and says which of them can't go there."""

import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from readie.ledger import Placed, Settled
from readie.ledger.routing import Broken
from readie.ledger.sessions import CanNot, Joining, Open, Owner, SessionLedger, Waits
from readie.protocol.call import CallHeader, Placement
from readie.protocol.codes import ErrorCode
from readie.protocol.owner import owner_of
from readie.sizes import format_bytes

from .message import MessageFormat
from .metrics import RouterMetrics
from .needs import Refused
from .queued_call import QueuedCall

if TYPE_CHECKING:
    from .tracing import RouterTraces

_MOST_KNOWN: Final = 10_000

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Admission:
    """What is left to do for calls."""

    to_place: list[QueuedCall] = field(default_factory=list)
    """Those of no session, and those that open theirs."""
    refused: list[tuple[QueuedCall, Refused]] = field(default_factory=list)
    broken: list[tuple[QueuedCall, str]] = field(default_factory=list)


class SessionCalls:
    """Sends calls to the owners of their sessions.

    What it has seen of an owner is only a guess, which the ledger checks: it saves the round trip of asking first.

    Args:
        ledger: the sessions' records.
        router: this router's id.
        messages: how messages are written.
        max_queued: how many calls may wait for their turn in one session.
        metrics: counts what becomes of calls.
        traces: is told of calls that are placed, where they are traced.
    """

    def __init__(
        self,
        ledger: SessionLedger,
        router: str,
        messages: MessageFormat,
        max_queued: int,
        *,
        metrics: RouterMetrics,
        traces: "RouterTraces | None",
    ) -> None:
        self._ledger = ledger
        self._router = router
        self._messages = messages
        self._max_queued = max_queued
        self._metrics = metrics
        self._traces = traces
        self._owners: OrderedDict[str, Owner] = OrderedDict()

    def admit(self, calls: Sequence[QueuedCall]) -> Admission:
        """Settle the calls of sessions that are open; return the others."""
        admission = Admission([call for call in calls if call.message.header.session is None])
        pending = [call for call in calls if call.message.header.session is not None]
        told: dict[str, Owner] = {}
        while pending:
            joining = []
            for call in pending:
                joined = self._join(call, told)
                if isinstance(joined, Refused):
                    admission.refused.append((call, joined))
                else:
                    joining.append((call, joined))
            pending = self._settle(joining, told, admission)
        return admission

    def _join(self, call: QueuedCall, told: dict[str, Owner]) -> Joining | Refused:
        header = call.message.header
        assert header.session is not None
        if owner_of(header.session.id) != owner_of(call.id):
            return Refused(ErrorCode.INVALID_REQUEST, f"session {header.session.id} is of another user than the call")
        owner = told.get(call.id) or self._owners.get(header.session.id)
        if owner is None:
            return Joining(header, call.attempt, call.taken, item=call.item)
        unfit = does_not_fit(header, owner)
        if unfit is None:
            placement = Placement(
                worker=owner.worker,
                incarnation=owner.incarnation,
                attempt=call.attempt,
                checkpoint_id=owner.checkpoint_id,
                reason="its session's sandbox",
                route_seconds=time.monotonic() - call.taken_at,
                sandbox=owner.sandbox,
            )
            readdressed, message = self._messages.readdress(call.message, placement)
            return Joining(readdressed, call.attempt, call.taken, owner.sandbox, message, call.item)
        if call.id in told:
            return unfit
        # The guess may be wrong: what a call is refused for is said by the ledger.
        return Joining(header, call.attempt, call.taken, item=call.item)

    def _settle(
        self, joining: Sequence[tuple[QueuedCall, Joining]], told: dict[str, Owner], admission: Admission
    ) -> list[QueuedCall]:
        again = []
        outcomes = self._ledger.join_all(self._router, self._max_queued, [joined for _, joined in joining])
        for (call, joined), outcome in zip(joining, outcomes, strict=True):
            use = joined.header.session
            assert use is not None
            match outcome:
                case Open(restarted):
                    call.restarted = restarted
                    admission.to_place.append(call)
                case Owner():
                    told[call.id] = outcome
                    self._remember(use.id, outcome)
                    again.append(call)
                case Placed():
                    owner = self._owners[use.id]
                    taken = time.monotonic() - call.taken_at
                    self._metrics.placed(owner.flavor, taken)
                    if self._traces is not None:
                        self._traces.placed(joined.header, taken)
                    log.info("placed: call=%s session=%s worker=%s", call.id, use.id, owner.worker)
                case Waits():
                    log.info("waits for its turn: call=%s session=%s", call.id, use.id)
                case Settled(None):
                    log.info("passed over, it is past being placed: call=%s", call.id)
                case Settled(int(attempt)):
                    call.attempt = attempt + 1
                    again.append(call)
                case CanNot():
                    self._owners.pop(use.id, None)
                    admission.refused.append((call, _refusal(use.id, outcome)))
                case Broken(reason):
                    admission.broken.append((call, f"broken record: {reason}"))
        return again

    def _remember(self, session_id: str, owner: Owner) -> None:
        self._owners[session_id] = owner
        self._owners.move_to_end(session_id)
        if len(self._owners) > _MOST_KNOWN:
            self._owners.popitem(last=False)


def does_not_fit(header: CallHeader, owner: Owner) -> Refused | None:  # noqa: PLR0911 - one for each reason
    """Return why a call can't run in its session's sandbox."""
    use, options = header.session, header.options
    assert use is not None
    has = f"session {use.id} runs in a sandbox that was " + (
        f"restored from {owner.checkpoint_id}" if owner.checkpoint_id else "started without a checkpoint"
    )
    pin = use.checkpoint_id
    # One whose restore failed was started cold in its place, for that call and so for the next.
    if pin is not None and pin not in {owner.checkpoint_id, owner.asked}:
        return Refused(
            ErrorCode.PRECONDITION,
            f"{has}, and the call asks for {pin}; leave checkpoint_id out or use another session",
        )
    if use.disable_optimized_execution and owner.checkpoint_id is not None:
        return Refused(
            ErrorCode.PRECONDITION,
            f"{has}, and the call has disable_optimized_execution=True; leave it out or use another session",
        )
    if options.flavor != owner.flavor:
        return Refused(
            ErrorCode.PRECONDITION,
            f"session {use.id} runs in the flavor {owner.flavor!r}, and the call asks for {options.flavor!r}",
        )
    if options.gpu and not owner.gpu:
        return Refused(
            ErrorCode.PRECONDITION,
            f"session {use.id} runs in a sandbox without a GPU, and the call has gpu=True; leave it out or use another "
            "session, opened with gpu=True",
        )
    if header.python != owner.python:
        return Refused(
            ErrorCode.INCOMPATIBLE_PYTHON,
            f"session {use.id} has Python {owner.python} and the call comes from Python {header.python}",
        )
    if options.memory_bytes is not None and options.memory_bytes > (owner.memory_bytes or options.memory_bytes):
        return Refused(
            ErrorCode.PRECONDITION,
            f"session {use.id} was opened with {format_bytes(owner.memory_bytes or 0)} of memory, and the call asks "
            f"for {format_bytes(options.memory_bytes)}",
        )
    return None


def _refusal(session_id: str, can_not: CanNot) -> Refused:
    match can_not.why:
        case "closed" | "expired":
            return Refused(ErrorCode.SESSION_EXPIRED, f"session {session_id} {can_not.detail}; open another one")
        case "lost":
            return Refused(ErrorCode.SESSION_LOST, f"session {session_id} {can_not.detail}; open another one")
        case "unknown":
            return Refused(
                ErrorCode.SESSION_EXPIRED,
                f"there is no session {session_id} any more: it ended a while ago, or was never opened",
            )
        case "many":
            return Refused(
                ErrorCode.RESOURCE_EXHAUSTED,
                f"as many calls wait for their turn in session {session_id} as may (READIE_MAX_QUEUED)",
            )
