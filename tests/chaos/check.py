"""What must be true of the calls of a run, whatever happened to the cluster."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.load import RETRIES, value_of

_LOST = ("WorkerLostError", "SandboxDiedError")
"""How a call may end that had begun when its worker or its sandbox was killed."""

_MEANT = {
    "slow": ("CallTimeoutError",),
    "unwanted": ("CallCancelledError",),
    "counting": ("SessionLostError", "SessionExpiredError"),
}
"""How else calls of some kinds may end, whether their functions came to run or not."""


@dataclass
class Called:
    """One call, as its client's journal has it."""

    marker: str
    kind: str
    number: int
    at: float
    id: str = ""
    outcome: str = ""
    """Empty: its client was killed before it knew."""
    read: bool = False
    """Whether its client lived to see its end."""
    refused: bool = False
    """The submission failed: it may have been accepted all the same."""


def read_journals(paths: Iterable[Path]) -> list[Called]:
    """Return every call that was to be submitted."""
    calls: dict[str, Called] = {}
    for path in paths:
        for line in path.read_text().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # the process was killed while it wrote the line
            marker = entry["marker"]
            match entry["event"]:
                case "submits":
                    calls[marker] = Called(marker, entry["kind"], entry["number"], entry["at"])
                case "submitted":
                    calls[marker].id = entry["id"]
                case "refused":
                    calls[marker].refused, calls[marker].outcome = True, entry["outcome"]
                case "ended":
                    calls[marker].read, calls[marker].outcome = True, entry["outcome"]
    return list(calls.values())


def findings(
    calls: Sequence[Called],
    executions: Callable[[str], int],
    lost_moments: Sequence[tuple[float, float]],
    lost_workers: Sequence[float],
) -> list[str]:
    """Return what is wrong, a line each.

    Args:
        calls: with their outcomes.
        executions: how often the function of a marker really ran.
        lost_moments: from when to when Redis lost all it had been told.
        lost_workers: when a worker was taken away.
    """
    wrong = []
    for call in calls:
        count = executions(call.marker)
        about = f"{call.kind} {call.marker} (call {call.id or 'unknown'}, ran {count} times)"
        # What Redis was told then, it does not know; the client is told that.
        moments = [(begin, end) for begin, end in lost_moments if begin - 5 <= call.at <= end + 2]
        forgotten = bool(moments)
        # Who had begun it, and would have told Redis so, was lost in the same moment, which is not promised.
        untold = any(begin - 5 <= lost <= end + 10 for begin, end in moments for lost in lost_workers)
        if count > _most(call) + untold:
            wrong.append(f"doubled: {about}")
        if call.refused or not call.id:
            continue
        if not call.outcome or call.outcome.startswith("hanging"):
            wrong.append(f"hanging: {about}: {call.outcome}")
        elif not (_is_right(call, count, executions) or (forgotten and _is_forgotten(call))):
            wrong.append(f"wrong outcome: {about}: {call.outcome[:300]}")
    return wrong


def _is_forgotten(call: Called) -> bool:
    """Return whether a call ended as one may that Redis was told of, or was told to cancel, and forgot."""
    return call.outcome.startswith("ResultExpiredError") or call.kind == "unwanted"


def _is_right(call: Called, count: int, executions: Callable[[str], int]) -> bool:
    kind, outcome = call.kind, call.outcome
    error = outcome.partition(":")[0]
    if error in _LOST or error in _MEANT.get(kind, ()):
        return True
    if error == "CallExpiredError":
        return kind == "expiring" and count == 0
    if kind == "yielding" and not call.read:
        # Nobody read its values any more.
        return error == "CallCancelledError" or outcome == "value: None"
    if kind == "failing":
        return error == "ValueError" and str(call.number) in outcome and count == 1
    number = call.number
    if kind == "counting":
        # Those before it in its session that never began were not counted: the next in line opens the session then.
        session = call.marker.rpartition("-")[0]
        number = sum(executions(f"{session}-{place}") > 0 for place in range(1, number + 1))
    return outcome == f"value: {value_of(kind, number)}" and count >= 1


def _most(call: Called) -> int:
    """Return how often a function may run."""
    return 1 + RETRIES if call.kind == "retried" else 1


def outcomes(calls: Sequence[Called]) -> Counter[str]:
    """Return how many calls ended in which way."""
    return Counter(
        "refused" if call.refused else call.outcome.partition(":")[0] if call.id else "not submitted" for call in calls
    )
