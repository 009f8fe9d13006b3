"""Which worker takes a call, and how the call starts there. Data in, data out."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from readie.protocol.call import CallHeader
from readie.protocol.codes import ErrorCode

from .needs import Needs, Nobody, Refused, WorkerState, all_full, fitting
from .scoring import Prediction, Scores

Fitting = Callable[[Needs], list[WorkerState] | Nobody | Refused]
"""Gives the workers that can take a call with these needs as soon as they have room."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Where a call goes and how it starts."""

    worker: WorkerState
    checkpoint_id: str | None
    reason: str
    predicted_seconds: float | None


def choose(header: CallHeader, workers: Sequence[WorkerState], fit: Fitting | None = None) -> Chosen | Nobody | Refused:
    """Return the decision for one call.

    Args:
        header: the call's.
        workers: every live worker.
        fit: :func:`~router.needs.fitting` for these workers, by whoever remembers its answers.
    """
    needs = Needs.of(header)
    contradiction = contradicts_itself(header)
    found = contradiction or (fit(needs) if fit else fitting(needs, workers))
    if not isinstance(found, list):
        return found
    free = [worker for worker in found if worker.has_room(needs)]
    if not free:
        return all_full(needs, found, workers)
    worker, start = soonest(header, free)
    return Chosen(worker, start.checkpoint_id, reason(header, worker, start), start.predicted_seconds)


def contradicts_itself(header: CallHeader) -> Refused | None:
    """Return why no worker whatsoever can take the call."""
    pin = header.options.checkpoint_id
    if pin is None or not header.options.disable_optimized_execution:
        return None
    return Refused(
        ErrorCode.INVALID_REQUEST,
        f"checkpoint_id={pin!r} asks for a checkpoint, disable_optimized_execution=True for none; give one of them",
    )


class Start(NamedTuple):
    """How a call starts on a worker."""

    checkpoint_id: str | None
    way: Prediction | None
    """What it is predicted to cost; ``None`` when nothing is known of a catalogue."""

    @property
    def predicted_seconds(self) -> float | None:
        """Until the function's first line."""
        return None if self.way is None else self.way.seconds


def soonest(header: CallHeader, workers: Sequence[WorkerState]) -> tuple[WorkerState, Start]:
    """Return the worker where the call starts first, and how; of equal ones the least loaded."""
    starts: dict[Hashable, Start] = {}
    best: tuple[tuple[float, float, str], WorkerState, Start] | None = None
    for worker in workers:
        start = starts.get(worker.kind)
        if start is None:
            start = starts[worker.kind] = _start(header, worker)
        seconds = start.predicted_seconds
        announcement = worker.announcement
        rank = float("inf") if seconds is None else seconds, worker.busy / announcement.slots, announcement.name
        if best is None or rank < best[0]:
            best = rank, worker, start
    assert best is not None
    return best[1:]


def ways(scores: Scores, worker: WorkerState) -> list[Prediction]:
    """Return every way in which a call can start on a worker now; of equally fast ones the first wins."""
    return [
        *(start.from_ready() for start in (*scores.checkpoints, scores.cold) if worker.is_ready(start.checkpoint_id)),
        *(start for start in scores.starts if start.checkpoint_id not in worker.avoided),
    ]


def _fastest(scores: Scores, worker: WorkerState) -> Prediction:
    """Return the fastest of the ways without making a list of them: this is done for every call."""
    best = scores.best
    if best.checkpoint_id in worker.avoided:
        best = min((start for start in scores.starts if start.checkpoint_id not in worker.avoided), key=_rounded)
    ready = [
        # A ready cold start goes last: calls that opt out can use no other.
        (round(scores.starts[position].import_seconds, 9), position or len(scores.starts), position)
        for checkpoint_id, count in worker.ready.items()
        if count > 0 and (position := scores.position.get(checkpoint_id)) is not None
    ]
    if ready:
        seconds, _, position = min(ready)
        if seconds <= _rounded(best):
            return scores.starts[position].from_ready()
    return best


def _rounded(start: Prediction) -> float:
    """Return whole nanoseconds, as the scores were made: equal costs must be equal."""
    return round(start.seconds, 9)


def _start(header: CallHeader, worker: WorkerState) -> Start:
    scores = worker.catalogue.scores(header.hints) if worker.catalogue else None
    if scores is None:
        return Start(None, None)
    pin = header.options.checkpoint_id
    if pin is not None or header.options.disable_optimized_execution:
        # The worker starts cold by itself where a pinned checkpoint fails to restore again.
        return Start(pin, next((way for way in ways(scores, worker) if way.checkpoint_id == pin), scores.cold))
    best = _fastest(scores, worker)
    return Start(best.checkpoint_id, best)


def reason(header: CallHeader, worker: WorkerState, start: Start) -> str:
    """Return why a call starts this way on this worker, for people."""
    options, way = header.options, start.way
    if options.disable_optimized_execution:
        return "optimized execution is disabled"
    if worker.catalogue is None or way is None:
        return "the worker serves no checkpoints"
    if options.checkpoint_id is not None:
        return "the call names this checkpoint"
    scores = worker.catalogue.scores(header.hints)
    if way.checkpoint_id is not None:
        return f"lowest predicted start: {_name(way)} {_seconds(way)}, cold {_seconds(scores.cold)}"
    usable = [score for score in scores.checkpoints if score.checkpoint_id not in worker.avoided]
    if not usable:
        return "every checkpoint failed to restore" if scores.checkpoints else "the generation has no checkpoint"
    nearest = min(usable, key=lambda score: score.seconds)
    return f"lowest predicted start: {_name(way)} {_seconds(way)}, {_name(nearest)} {_seconds(nearest)}"


def _name(way: Prediction) -> str:
    return f"{way.checkpoint_id or 'cold'}{' (ready)' if way.ready else ''}"


def _seconds(way: Prediction) -> str:
    return f"{way.seconds:.3f} s"
