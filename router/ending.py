"""Ends calls that no worker will run."""

from dataclasses import dataclass
from typing import Literal

from readie.ledger.routing import Broken, Record, RoutingLedger
from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import CallState, Envelope, Failure, Report


@dataclass(frozen=True, slots=True)
class Ending:
    """Tells callers of calls that fail before they are placed.

    Args:
        ledger: the calls' records.
        keep_seconds: how long such a result stays.
    """

    ledger: RoutingLedger
    keep_seconds: int

    def fail(self, call_id: str, item: bytes, code: ErrorCode, message: str) -> bool:
        """End the call that was submitted with this item, if it is on no worker; returns whether it was.

        An item that is not the one the call was submitted with is forged, and changes nothing.
        """
        (record,) = self.ledger.records([call_id], messages=True)
        if isinstance(record, Broken) or record.state is not CallState.QUEUED or record.message != item:
            return False
        return self._end(call_id, record, CallState.FAILED, Failure(code=code, message=message))

    def expire(self, call_id: str, record: Record, message: str) -> bool:
        """End a call that no worker began in time, unless one does at this moment; returns whether it was ended."""
        return self._end(call_id, record, CallState.EXPIRED, Failure(code=ErrorCode.EXPIRED, message=message))

    def _end(
        self, call_id: str, record: Record, state: Literal[CallState.FAILED, CallState.EXPIRED], failure: Failure
    ) -> bool:
        envelope = Envelope(
            id=call_id,
            state=state,
            failure=failure,
            submitted_at=record.submitted_at,
            report=Report(attempt=record.attempt, reason=failure.message),
        )
        ended = self.ledger.finish(envelope, attempt=record.attempt, keep_seconds=self.keep_seconds, unless_begun=True)
        return ended is not None
