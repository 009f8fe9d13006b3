"""Where items go that can't be routed, so that they hold up nothing and people can look at them."""

import json
import logging
import time
from typing import Final

from readie.ledger.routing import RoutingLedger
from readie.protocol.codes import ErrorCode

from .ending import Ending

_MOST_ITEM_CHARACTERS: Final = 2000

log = logging.getLogger(__name__)


class DeadLetters:
    """The list of unroutable items, each as ``{"reason", "at", "item"}`` (seconds since the epoch, item cut short).

    Args:
        ledger: where the list is.
        router: this router's id.
        ending: tells the caller.
    """

    def __init__(self, ledger: RoutingLedger, router: str, ending: Ending) -> None:
        self._ledger = ledger
        self._router = router
        self._ending = ending

    def bury(self, item: bytes, reason: str, call_id: str | None = None) -> None:
        """Put an item away and take it off the taken list.

        Args:
            item: as it was on the queue.
            reason: for people.
            call_id: the caller of this call is told, if the item is what the call was submitted with.
        """
        told = call_id is not None and self._ending.fail(
            call_id, item, ErrorCode.INVALID_REQUEST, f"the router can't read the call: {reason}"
        )
        text = item[: 4 * _MOST_ITEM_CHARACTERS].decode("utf-8", "backslashreplace")[:_MOST_ITEM_CHARACTERS]
        self._ledger.bury(self._router, item, json.dumps({"reason": reason, "at": time.time(), "item": text}))
        log.warning("dead letter: call=%s bytes=%d told=%s reason=%r", call_id, len(item), told, reason)
