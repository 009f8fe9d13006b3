"""Ends calls that no worker will run."""

from dataclasses import dataclass

from readie.ledger.routing import Broken, RoutingLedger
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
        envelope = Envelope(
            id=call_id,
            state=CallState.FAILED,
            failure=Failure(code=code, message=message),
            submitted_at=record.submitted_at,
            report=Report(attempt=record.attempt, reason=message),
        )
        return self.ledger.finish(envelope, attempt=record.attempt, keep_seconds=self.keep_seconds) is not None
