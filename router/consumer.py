"""The consumer of the submit queue: takes messages so that a kill at no moment loses one, and has them routed."""

import logging
import time
from collections.abc import Sequence
from typing import Final

from readie.ledger.routing import RoutingLedger
from readie.protocol import keys

from .dead_letters import DeadLetters
from .dispatch import Dispatcher, QueuedCall
from .message import MessageFormat, UnreadableError
from .waiting import WaitingCalls

_BATCH: Final = 64
_WAKE: Final = keys.WAKE.encode()

log = logging.getLogger(__name__)


class Consumer:
    """Takes items off the submit queue and settles each.

    What it has in hand is on a list in Redis (``keys.router_taken``) until it is settled there.

    Args:
        ledger: the queue and the calls' records. Its connection must not repeat commands by itself: a repeated read
            of the queue would leave the item of the first one on the taken list.
        router: this router's id.
        messages: how items are read.
        dispatcher: what places calls.
        waiting: the calls that wait.
        dead_letters: where unreadable items go.
    """

    def __init__(
        self,
        ledger: RoutingLedger,
        router: str,
        *,
        messages: MessageFormat,
        dispatcher: Dispatcher,
        waiting: WaitingCalls,
        dead_letters: DeadLetters,
    ) -> None:
        self._ledger = ledger
        self._router = router
        self._messages = messages
        self._dispatcher = dispatcher
        self._waiting = waiting
        self._dead_letters = dead_letters

    def consume(self, wait_seconds: float) -> None:
        """Settle one batch of items, waiting up to ``wait_seconds`` for the first."""
        items = self._ledger.take(self._router, _BATCH)
        if not items:
            item = self._ledger.await_item(self._router, wait_seconds)
            items = [] if item is None else [item]
        self._settle(items)

    def _settle(self, items: Sequence[bytes]) -> None:
        taken_at = time.monotonic()
        wakes = items.count(_WAKE)
        if wakes:
            # Those that wait are older than the new ones of this batch.
            self._waiting.wake()
            self._ledger.settle(self._router, _WAKE, wakes)
        calls = []
        for item in items:
            if item != _WAKE:
                try:
                    calls.append(QueuedCall(self._messages.read(item), item, taken_at=taken_at))
                except UnreadableError as error:
                    self._dead_letters.bury(item, str(error), error.call_id)
        self._dispatcher.dispatch(calls)
