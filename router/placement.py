"""Which worker takes a call, and how the call starts there. Data in, data out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from readie.protocol.announcement import Announcement
from readie.protocol.call import CallHeader
from readie.protocol.codes import ErrorCode

from .catalogue import CompiledCatalogue
from .scoring import Prediction, Scores, id_order


@dataclass(slots=True)
class WorkerState:
    """A live worker as a router sees it."""

    announcement: Announcement
    catalogue: CompiledCatalogue | None
    """``None``: it serves no checkpoints, or its catalogue could not be read."""
    busy: int
    """Calls it holds. The router that places a call counts it here until it looks again."""

    @property
    def free(self) -> int:
        """Slots that can take a call."""
        return 0 if self.announcement.draining else self.announcement.slots - self.busy


@dataclass(frozen=True, slots=True)
class Chosen:
    """Where a call goes and how it starts."""

    worker: WorkerState
    checkpoint_id: str | None
    reason: str
    predicted_seconds: float | None


@dataclass(frozen=True, slots=True)
class Nobody:
    """No worker can take the call now."""

    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    """No worker that is there can ever take the call."""

    code: ErrorCode
    message: str


def choose(header: CallHeader, workers: Sequence[WorkerState]) -> Chosen | Nobody | Refused:
    """Return the decision for one call, given every live worker."""
    options = header.options
    pin = options.checkpoint_id
    if pin is not None and options.disable_optimized_execution:
        return Refused(
            ErrorCode.INVALID_REQUEST,
            f"checkpoint_id={pin!r} asks for a checkpoint, disable_optimized_execution=True for none; give one of them",
        )
    if not workers:
        return Nobody("no worker is running")
    fitting = [worker for worker in workers if worker.announcement.python == header.python]
    if not fitting:
        there = ", ".join(sorted({worker.announcement.python for worker in workers}))
        return Refused(
            ErrorCode.INCOMPATIBLE_PYTHON,
            f"the call comes from Python {header.python} and the running workers have Python {there}; "
            "call from one of these versions, or start a worker whose flavor has yours",
        )
    if pin is not None:
        fitting = [worker for worker in fitting if worker.catalogue and pin in worker.catalogue.checkpoint_ids]
        if not fitting:
            return Refused(ErrorCode.INVALID_REQUEST, _unknown_pin(pin, header.python, workers))
    free = [worker for worker in fitting if worker.free > 0]
    if not free:
        return Nobody(_all_full(pin, header.python, everybody=len(fitting) == len(workers)))
    starts = {catalogue: _start(header, catalogue) for catalogue in {worker.catalogue for worker in free}}
    worker = min(free, key=lambda worker: _preference(worker, starts[worker.catalogue]))
    start = starts[worker.catalogue]
    return Chosen(worker, start.checkpoint_id, start.reason, start.predicted_seconds)


class _Start(NamedTuple):
    checkpoint_id: str | None
    predicted_seconds: float | None
    reason: str


def _start(header: CallHeader, catalogue: CompiledCatalogue | None) -> _Start:
    options = header.options
    scores = catalogue.scores(header.hints) if catalogue else None
    if options.disable_optimized_execution:
        return _Start(None, scores.cold.seconds if scores else None, "optimized execution is disabled")
    if scores is None:
        return _Start(None, None, "the worker serves no checkpoints")
    pinned = scores.of(options.checkpoint_id) if options.checkpoint_id is not None else None
    if pinned is not None:
        return _Start(pinned.checkpoint_id, pinned.seconds, "the call names this checkpoint")
    return _Start(scores.best.checkpoint_id, scores.best.seconds, _lowest(scores))


def _preference(worker: WorkerState, start: _Start) -> tuple[float, float, str]:
    predicted = float("inf") if start.predicted_seconds is None else start.predicted_seconds
    return predicted, worker.busy / worker.announcement.slots, worker.announcement.name


def _lowest(scores: Scores) -> str:
    if not scores.checkpoints:
        return "the generation has no checkpoint"
    if scores.best is scores.cold:
        nearest = min(scores.checkpoints, key=lambda score: score.seconds)
        return f"lowest predicted start: cold {_seconds(scores.cold)}, {nearest.checkpoint_id} {_seconds(nearest)}"
    return f"lowest predicted start: {scores.best.checkpoint_id} {_seconds(scores.best)}, cold {_seconds(scores.cold)}"


def _seconds(prediction: Prediction) -> str:
    return f"{prediction.seconds:.3f} s"


def _all_full(pin: str | None, python: str, *, everybody: bool) -> str:
    if pin is not None:
        return f"all workers that have {pin} are full"
    return "all workers are full" if everybody else f"all workers with Python {python} are full"


def _unknown_pin(pin: str, python: str, workers: Iterable[WorkerState]) -> str:
    listed = {
        checkpoint_id
        for worker in workers
        if worker.announcement.python == python and worker.catalogue
        for checkpoint_id in worker.catalogue.checkpoint_ids
    }
    there = f"there are {', '.join(sorted(listed, key=id_order))}" if listed else "no worker serves any checkpoint now"
    return f"no worker lists the checkpoint {pin!r}; {there}"
