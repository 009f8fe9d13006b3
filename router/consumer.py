"""The consumer of the submit queue: takes messages so that a kill at no moment loses one, and has them routed."""

import logging
import time
from collections.abc import Sequence
from typing import Final

from readie.ledger.routing import RoutingLedger
from readie.ledger.wishes import Wishes
from readie.protocol import keys
from readie.protocol.explain import ExplainRequest
from readie.protocol.reading import UnreadableError

from .dead_letters import DeadLetters
from .dispatch import Dispatcher
from .explain import Explainer
from .message import MessageFormat
from .queued_call import QueuedCall
from .waiting import WaitingCalls

_BATCH: Final = 64
_LEAST_WAIT_SECONDS: Final = 0.001
"""Redis takes zero for no limit."""
_AT_ONCE_SECONDS: Final = 0.001
"""An item that comes as soon was there before it was asked for."""
_WAKE: Final = keys.WAKE.encode()
_WISH: Final = keys.WISH_WORD.encode()
_PAUSE_SECONDS: Final = 0.005
"""After a look at the waiting calls that was in vain: most that ends then is no use to them."""

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
        explainer: what answers questions.
        wishes: what clients ask for besides.
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
        explainer: Explainer,
        wishes: Wishes,
        dead_letters: DeadLetters,
    ) -> None:
        self._ledger = ledger
        self._router = router
        self._messages = messages
        self._dispatcher = dispatcher
        self._waiting = waiting
        self._explainer = explainer
        self._wishes = wishes
        self._dead_letters = dead_letters
        self._wakes = 0
        """Items in hand that ask for a look at the waiting calls."""
        self._more = True
        """Whether others may follow the item that came last: one that had to be waited for was the only one."""
        self._no_look_before = 0.0
        """Monotonic clock, seconds."""

    def consume(self, wait_seconds: float) -> None:
        """Settle one batch of items, waiting up to ``wait_seconds`` for the first."""
        items = self._ledger.take(self._router, _BATCH) if self._more else []
        if not items:
            if self._wakes:
                wait_seconds = min(wait_seconds, self._no_look_before - time.monotonic())
            began = time.monotonic()
            item = self._ledger.await_item(self._router, max(wait_seconds, _LEAST_WAIT_SECONDS))
            self._more = time.monotonic() - began < _AT_ONCE_SECONDS
            items = [] if item is None else [item]
        self._settle(items)

    def _settle(self, items: Sequence[bytes]) -> None:
        taken_at = time.monotonic()
        self._wakes += items.count(_WAKE)
        if self._wakes and taken_at >= self._no_look_before:
            # Those that wait are older than the new ones of this batch.
            if not self._waiting.wake():
                self._no_look_before = time.monotonic() + _PAUSE_SECONDS
            wakes, self._wakes = self._wakes, 0
            self._ledger.settle(self._router, _WAKE, wakes)
        calls = []
        for item in items:
            if item == _WAKE:
                continue
            if item.startswith(_WISH):
                self._carry_out(item)
                continue
            try:
                content = self._messages.read(item)
            except UnreadableError as error:
                if error.question_id is not None:
                    self._explainer.refuse(error.question_id, item, str(error))
                self._dead_letters.bury(item, str(error), error.call_id, forged=error.forged)
            else:
                if isinstance(content, ExplainRequest):
                    self._explainer.answer(content, item)
                else:
                    calls.append(QueuedCall(content, item, taken_at=taken_at))
        self._dispatcher.dispatch(calls)

    def _carry_out(self, item: bytes) -> None:
        wish_id = item.removeprefix(_WISH).decode(errors="replace")
        done = self._wishes.carry_out(wish_id)
        self._ledger.settle(self._router, item)
        log.info("wish: id=%s done=%r", wish_id, done)
