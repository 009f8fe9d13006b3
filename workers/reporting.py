"""The end of a call as it is stored: its value or failure, and the report of its way."""

import base64
from typing import Literal

from readie.ledger import Claim
from readie.protocol.call import INLINE_LIMIT_BYTES
from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import CallState, Envelope, Failure, Report

from .ends import End
from .run import Run
from .sandbox.starter import Started


def end_of(run: Run, claim: Claim, worker: str) -> End:
    """Return how an attempt ended that this worker ran."""
    placement = run.header.placement
    assert placement is not None
    size = len(run.value)
    inline = size <= INLINE_LIMIT_BYTES
    envelope = Envelope(
        id=run.header.id,
        state=_state(run.failure),
        failure=run.failure,
        value=base64.b64encode(run.value).decode("ascii") if inline and size else None,
        value_bytes=size,
        value_by_reference=not inline,
        submitted_at=claim.submitted_at,
        report=report_of(run, claim, worker),
    )
    return End(envelope, placement.attempt, b"" if inline else run.value)


def start_of(started: Started | None) -> str:
    """Return how a call got its sandbox, for people."""
    if started is None:
        return "none"
    return f"{started.start} from {started.checkpoint_id}" if started.checkpoint_id else started.start


def report_of(run: Run, claim: Claim, worker: str) -> Report:
    """Return how an attempt went until now."""
    placement, started = run.header.placement, run.started
    assert placement is not None
    fallback = started.fallback if started else None
    return Report(
        worker=worker,
        start=started.start if started else None,
        checkpoint_id=started.checkpoint_id if started else None,
        pool=started.pool if started and started.start != "warm" else None,
        attempt=placement.attempt,
        reason=placement.reason,
        fallback=f"{placement.checkpoint_id}: {fallback.reason}" if fallback else None,
        session_id=run.session.id if run.session else None,
        sandbox=run.session.sandbox_id if run.session else None,
        restarted=placement.restarted,
        ignored_globals=run.ignored_globals,
        packages=run.packages,
        predicted_seconds=placement.predicted_seconds,
        output_bytes=run.printed_bytes,
        yielded=run.yielded,
        phases={
            "queue": claim.placed_at - claim.submitted_at - placement.route_seconds,
            "route": placement.route_seconds,
            "deliver": claim.started_at - claim.placed_at,
            **run.phases,
        },
    )


def _state(failure: Failure | None) -> Literal[CallState.DONE, CallState.FAILED, CallState.CANCELLED]:
    if failure is None:
        return CallState.DONE
    return CallState.CANCELLED if failure.code is ErrorCode.CANCELLED else CallState.FAILED
