"""How a call ended on this worker, for those who watch."""

from dataclasses import dataclass
from typing import Any

from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import Failure


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended that was run here."""

    failure: Failure | None
    start: str
    """How it got its sandbox, for people."""

    def event(self) -> tuple[str, dict[str, Any]]:
        """Return the type and the fields of the Celery event that tells of it."""
        failure = self.failure
        if failure is None:
            return "task-succeeded", {"result": repr(self.start)}
        if failure.code is ErrorCode.CANCELLED:
            return "task-revoked", {"terminated": True, "signum": "SIGKILL", "expired": False}
        # As the user's function raised it, or what else ended the call.
        kind = (failure.type or failure.code.value).removeprefix("builtins.")
        return "task-failed", {"exception": f"{kind}: {failure.message}", "traceback": failure.traceback}
