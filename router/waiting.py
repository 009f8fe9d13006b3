"""Looks at the calls that wait whenever something may let one of them run."""

from typing import Final

from readie.ledger.routing import Broken, Record, RoutingLedger

from .dead_letters import DeadLetters
from .dispatch import Dispatcher, QueuedCall
from .fleet import Fleet
from .message import MessageFormat, UnreadableError

_FIRST: Final = 8
_AT_ONCE: Final = 64


class WaitingCalls:
    """The calls in ``keys.WAITING``, oldest first.

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

    def wake(self) -> None:
        """Place the waiting calls that can be placed now, and bring up to date what the others wait for."""
        self._fleet.look()
        after = 0.0
        seen: set[str] = set()
        # Mostly one slot was freed and the oldest call takes it: begin with few, each costs the reading of its message.
        count = _FIRST
        while page := [entry for entry in self._ledger.waiting(after, count) if entry[0] not in seen]:
            after = page[-1][1]
            count = min(2 * count, _AT_ONCE)
            call_ids = [call_id for call_id, _ in page]
            seen.update(call_ids)
            calls = [
                call
                for call_id, record in zip(call_ids, self._ledger.records(call_ids, messages=True), strict=True)
                if (call := self._read(call_id, record)) is not None
            ]
            told = self._dispatcher.dispatch(calls)
            if not told and not self._fleet.has_room:
                return

    def _read(self, call_id: str, record: Record | Broken) -> QueuedCall | None:
        if isinstance(record, Broken) or not record.message:
            self._ledger.drop_waiting(call_id)
            return None
        try:
            message = self._messages.read(record.message)
        except UnreadableError as error:
            self._ledger.drop_waiting(call_id)
            self._dead_letters.bury(record.message, str(error), call_id)
            return None
        return QueuedCall(message, record.message, waiting=True, attempt=record.attempt + 1, waits_for=record.waits_for)
