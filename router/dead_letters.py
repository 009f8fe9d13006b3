"""Where items go that can't be routed, so that they hold up nothing and people can look at them."""

import logging

from readie.ledger.routing import RoutingLedger
from readie.protocol import keys
from readie.protocol.codes import ErrorCode
from readie.protocol.dead_letter import DeadLetter

from .ending import Ending
from .metrics import RouterMetrics

log = logging.getLogger(__name__)


class DeadLetters:
    """The list of unroutable items.

    Args:
        ledger: where the list is.
        router: this router's id.
        ending: tells the caller.
        metrics: counts them.
    """

    def __init__(self, ledger: RoutingLedger, router: str, ending: Ending, metrics: RouterMetrics) -> None:
        self._ledger = ledger
        self._router = router
        self._ending = ending
        self._metrics = metrics

    def bury(self, item: bytes, reason: str, call_id: str | None = None, *, forged: bool = False) -> None:
        """Put an item away and take it off the taken list.

        Args:
            item: as it was on the queue.
            reason: for people.
            call_id: the caller of this call is told, if the item is what the call was submitted with.
            forged: it is not signed as it must be.
        """
        told = call_id is not None and self._ending.fail(
            call_id,
            item,
            ErrorCode.INVALID_REQUEST,
            f"the router refuses the call: {reason}" if forged else f"the router can't read the call: {reason}",
        )
        self._ledger.bury(DeadLetter.of(item, keys.SUBMIT_QUEUE, reason), forged=forged)
        self._ledger.settle(self._router, item)
        self._metrics.dead_letter()
        log.warning("dead letter: call=%s bytes=%d told=%s reason=%r", call_id, len(item), told, reason)
