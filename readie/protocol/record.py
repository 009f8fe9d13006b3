"""A call as its record in Redis has it, for people who look at calls."""

from .call import CallOptions, ImportHints, Message
from .envelope import CallState, Failure, Report


class CallRecord(Message):
    """One call. Times are Redis clock, seconds since the epoch; ``None``: not (yet)."""

    id: str
    state: CallState
    function: str = ""
    """The function's name; empty when the client that sent it does not tell."""
    client: str = ""
    worker: str | None = None
    """Where it was placed last."""
    session: str | None = None
    attempt: int = 0
    """How often it was placed."""
    begun: int = 0
    """How often a worker has begun it."""
    submitted_at: float
    placed_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None


class Choice(Message):
    """How a router decided that a call shall start."""

    checkpoint_id: str | None = None
    reason: str = ""
    predicted_seconds: float | None = None


class CallDetails(CallRecord):
    """All that is known of one call, but for its function, its arguments and its value."""

    waits_for: str = ""
    """What a queued call waits for."""
    choice: Choice | None = None
    """Of a call that is placed or runs; of one that has ended, the report has it."""
    options: CallOptions | None = None
    """As long as it has not ended."""
    hints: ImportHints | None = None
    """Likewise."""
    failure: Failure | None = None
    value_bytes: int | None = None
    """Size of the pickled value of a call that has ended with one."""
    report: Report | None = None
    """Of a call that has ended."""
    withheld: bool = False
    """Whether options, hints, failure and report are left out, because this user of Redis may not read what they
    are kept with: function, arguments and value."""
