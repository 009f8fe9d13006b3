"""Ends the calls that no worker has begun within their ``expires``. Any number of routers may do it at once."""

import logging
from typing import Final

from readie.ledger.routing import Broken, RoutingLedger
from readie.protocol.envelope import CallState

from .ending import Ending
from .metrics import RouterMetrics

_AT_ONCE: Final = 256
_LATEST_LOOK_SECONDS: Final = 0.5
"""A call that expires sooner than any that is known of is noticed this much too late at the most."""

log = logging.getLogger(__name__)


class Expiry:
    """Looks at the calls that must begin before a time; the next of them tells when to look again.

    Args:
        ledger: the calls' records.
        ending: tells the callers.
        metrics: counts them.
    """

    def __init__(self, ledger: RoutingLedger, ending: Ending, metrics: RouterMetrics) -> None:
        self._ledger = ledger
        self._ending = ending
        self._metrics = metrics

    def sweep(self) -> float:
        """End what has expired; returns after how many seconds to look again."""
        calls = self._ledger.expiring(_AT_ONCE)
        expired = [call_id for call_id, left in calls if left <= 0]
        if expired:
            for call_id, record in zip(expired, self._ledger.records(expired), strict=True):
                if isinstance(record, Broken) or record.state not in {CallState.QUEUED, CallState.PLACED}:
                    self._ledger.drop_expiry(call_id)
                    continue
                if record.expires_at is None or record.expires_at > self._ledger.now():
                    # Whoever may submit a call may write there, and the record alone says when a call expires.
                    self._ledger.put_expiry(call_id, record.expires_at)
                    continue
                _, waited_for = self._ledger.state(call_id)
                message = f"no worker began the call within its expires{f': {waited_for}' if waited_for else ''}"
                if self._ending.expire(call_id, record, message):
                    self._metrics.expired()
                    log.info("expired: call=%s waited_for=%r", call_id, waited_for)
        left = calls[len(expired)][1] if len(expired) < len(calls) else _LATEST_LOOK_SECONDS
        return 0.0 if len(expired) == _AT_ONCE else min(left, _LATEST_LOOK_SECONDS)
