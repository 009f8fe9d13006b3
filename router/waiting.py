"""Looks at the calls that wait whenever something may let one of them run."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from readie.ledger.routing import Broken, Record, RoutingLedger, Waiting
from readie.protocol.envelope import CallState
from readie.protocol.explain import ExplainRequest
from readie.protocol.reading import UnreadableError

from .dead_letters import DeadLetters
from .dispatch import Dispatcher
from .fleet import Fleet
from .message import MessageFormat
from .needs import NO_WORKER, Needs, Nobody, Refused
from .queued_call import QueuedCall

_AT_ONCE: Final = 64
_MOST_PAGES: Final = 2
"""Then what came meanwhile has its turn."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Groups:
    """The groups of waiting calls as they are now."""

    open: list[str] = field(default_factory=list)
    """Those with a call to place or to refuse."""
    room: int = 0
    """How many calls of these can be settled, at the most."""
    waits_for: dict[str, str] = field(default_factory=dict)
    """Why each of the others waits."""


class WaitingCalls:
    """The calls in ``keys.WAITING``.

    They wait in groups of equal needs, so that whether any call can run is known from the groups alone, and the calls
    behind the first of a group are not even read.

    Args:
        ledger: the calls' records, which hold their messages.
        fleet: the workers.
        messages: how messages are read.
        dispatcher: what places them.
        dead_letters: where unreadable ones go.
    """

    def __init__(
        self,
        ledger: RoutingLedger,
        fleet: Fleet,
        messages: MessageFormat,
        dispatcher: Dispatcher,
        dead_letters: DeadLetters,
    ) -> None:
        self._ledger = ledger
        self._fleet = fleet
        self._messages = messages
        self._dispatcher = dispatcher
        self._dead_letters = dead_letters

    def wake(self) -> bool:
        """Place the waiting calls that can be placed now, and bring up to date what the others wait for.

        Returns:
            Whether there was any to place or to refuse.
        """
        self._fleet.look()
        known = self._ledger.waiting_groups()
        groups = self._judge(known)
        seen: set[str] = set()
        for _ in range(_MOST_PAGES):
            if not groups.open:
                break
            page = self._ledger.waiting(groups.open, min(groups.room, _AT_ONCE))
            page = [call for call in page if call.call_id not in seen]
            if not page:
                break
            seen.update(call.call_id for call in page)
            self._dispatcher.dispatch(self._read(page, known))
            groups = self._judge(known)
        else:
            self._ledger.ask_for_wake()
        changed = {group: why for group, why in groups.waits_for.items() if why != known[group]}
        if changed:
            self._ledger.explain_waiting(changed)
        return bool(seen)

    def _judge(self, known: Mapping[str, str]) -> _Groups:
        groups = _Groups()
        for group, why in known.items():
            try:
                needs = Needs.of_group(group)
            except ValueError as error:
                log.warning("passed over: %s", error)
                continue
            found = self._fleet.candidates.fitting(needs)
            if isinstance(found, Nobody):
                groups.waits_for[group] = found.why
            elif isinstance(found, Refused):
                if found.for_want_of_workers and _is_patient(why):
                    groups.waits_for[group] = found.message
                else:
                    groups.open.append(group)
                    groups.room += _AT_ONCE
            else:
                room = sum(worker.free for worker in found if worker.has_room(needs))
                if room:
                    groups.open.append(group)
                    groups.room += room
                else:
                    groups.waits_for[group] = self._fleet.candidates.all_full(needs).why
        return groups

    def _read(self, page: Sequence[Waiting], known: Mapping[str, str]) -> list[QueuedCall]:
        records = self._ledger.records([call.call_id for call in page], messages=True)
        calls = []
        for waiting, record in zip(page, records, strict=True):
            call = self._read_one(waiting, record, patient=_is_patient(known[waiting.group]))
            if call is None:
                self._ledger.drop_waiting(waiting.call_id, waiting.group)
            else:
                calls.append(call)
        return calls

    def _read_one(self, waiting: Waiting, record: Record | Broken, *, patient: bool) -> QueuedCall | None:
        if isinstance(record, Broken) or record.state is not CallState.QUEUED or not record.message:
            return None
        try:
            message = self._messages.read(record.message)
            if isinstance(message, ExplainRequest):
                raise UnreadableError("a question, not a call", waiting.call_id)
        except UnreadableError as error:
            self._dead_letters.bury(record.message, str(error), waiting.call_id)
            return None
        return QueuedCall(message, record.message, waiting.group, patient, attempt=record.attempt + 1)


def _is_patient(waits_for: str) -> bool:
    """Whether a group waits for workers that were there: they may just be starting again."""
    return waits_for != NO_WORKER
