"""A question to a router, and its answer: where a call would go and why."""

from typing import Final, Literal

from pydantic import Field

from .call import CallHeader, ImportHints, Message
from .envelope import Failure
from .owner import ID_PATTERN

ANSWER_SECONDS: Final = 30
"""How long an answer waits to be read."""


class ExplainRequest(Message):
    """An item of the submit queue (as JSON) that asks for an explanation instead of a placement."""

    task: Literal["readie.explain"]  # keys.EXPLAIN_TASK
    id: str = Field(pattern=f"^{ID_PATTERN}$")
    """Names the list ``keys.explanation(id)`` that takes the answer."""
    header: CallHeader
    """Of the call that would be made; its payload is not needed."""


class StartCost(Message):
    """The predicted time until the function's first line for one way to start, by its parts."""

    checkpoint_id: str | None
    """``None``: a cold start."""
    ready: bool = False
    """A sandbox waits that was restored, or started cold, ahead."""
    base_seconds: float
    """What every start of this kind takes."""
    size_seconds: float
    """What the checkpoint's size adds."""
    import_seconds: float
    """What the imports take that this start does not bring."""
    missing: tuple[str, ...] = ()
    """Needed modules that this start does not bring."""

    @property
    def seconds(self) -> float:
        """The whole prediction."""
        return self.base_seconds + self.size_seconds + self.import_seconds


class ExplainAnswer(Message):
    """What a router would do with a call now."""

    hints: ImportHints
    resolved: tuple[str, ...] = ()
    """Modules of the catalogue that the hints stand for."""
    unknown: tuple[str, ...] = ()
    """Hints that the catalogue knows nothing of."""
    worker: str | None = None
    generation: str | None = None
    starts: tuple[StartCost, ...] = ()
    """Every way to start on that worker, the fastest first."""
    checkpoint_id: str | None = None
    """The choice; ``None``: a cold start, or no choice at all (see ``waits_for`` and ``failure``)."""
    predicted_seconds: float | None = None
    reason: str = ""
    waits_for: str = ""
    """Why the call would wait."""
    failure: Failure | None = None
    """Why the call would be refused."""
