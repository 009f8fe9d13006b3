"""Which worker takes a call, and how the call starts there. Data in, data out."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from readie.protocol.call import CallHeader
from readie.protocol.codes import ErrorCode

from .candidates import ALL, Candidates, Group, Shelf
from .needs import Needs, Nobody, Refused, WorkerState
from .scoring import Prediction, Scores


@dataclass(frozen=True, slots=True)
class Chosen:
    """Where a call goes and how it starts."""

    worker: WorkerState
    checkpoint_id: str | None
    reason: str
    predicted_seconds: float | None


def choose(header: CallHeader, candidates: Candidates) -> Chosen | Nobody | Refused:
    """Return the decision for one call, which is not yet counted for the worker.

    It is that of :func:`soonest` among those with room.
    """
    needs = Needs.of(header)
    groups = contradicts_itself(header) or candidates.groups(needs)
    if not isinstance(groups, list):
        return groups
    worker = _soonest_of_groups(header, groups)
    if worker is None:
        return candidates.all_full(needs)
    start = _start(header, worker)
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
    """Return the worker where the call starts first, and how; of equal ones the least loaded, the first by turn."""
    starts = [(worker, _start(header, worker)) for worker in workers]
    return min(
        starts,
        key=lambda found: (_seconds_of(found[1].way), found[0].load, found[0].turn, found[0].announcement.name),
    )


def _soonest_of_groups(header: CallHeader, groups: Sequence[Group]) -> WorkerState | None:
    """Return what :func:`soonest` does, from the fastest shelves alone; ``None``: no worker has room."""
    shelves = sorted(
        ((seconds, group, shelf) for group in groups for seconds, shelf in _shelves(header, group)),
        key=lambda found: found[0],
    )
    best: tuple[float, int, str, WorkerState] | None = None
    fastest = 0.0
    for seconds, group, shelf in shelves:
        if best is not None and seconds > fastest:
            break
        found = group.least_loaded(shelf)
        if found is not None and (best is None or found[:3] < best[:3]):
            best, fastest = found, seconds
    return best and best[3]


def _shelves(header: CallHeader, group: Group) -> list[tuple[float, Shelf]]:
    """Return where the call may start in a group, with the predicted seconds."""
    if group.catalogue is None:
        return [(_seconds_of(None), ALL)]
    scores = group.catalogue.scores(header.hints)
    if is_fixed(header):
        pin = header.options.checkpoint_id
        made = scores.cold if pin in group.avoided else scores.starts[scores.position[pin]]
    else:
        made = _fastest_made(scores, group.avoided)
    most = _seconds_of(made)
    shelves: list[tuple[float, Shelf]] = [(most, ALL)]
    for checkpoint_id in group.ready_checkpoints():
        if (position := scores.position.get(checkpoint_id)) is None:
            continue
        seconds = round(scores.starts[position].import_seconds, 9)
        if seconds <= most and (not is_fixed(header) or checkpoint_id == header.options.checkpoint_id):
            shelves.append((seconds, (checkpoint_id,)))
    return shelves


def is_fixed(header: CallHeader) -> bool:
    """Whether the call says itself how it starts."""
    return header.options.checkpoint_id is not None or header.options.disable_optimized_execution


def ways(scores: Scores, worker: WorkerState) -> list[Prediction]:
    """Return every way in which a call can start on a worker now; of equally fast ones the first wins."""
    return [
        *(start.from_ready() for start in (*scores.checkpoints, scores.cold) if worker.is_ready(start.checkpoint_id)),
        *(start for start in scores.starts if start.checkpoint_id not in worker.avoided),
    ]


def _fastest(scores: Scores, worker: WorkerState) -> Prediction:
    """Return the fastest of the ways without making a list of them: this is done for every call."""
    best = _fastest_made(scores, worker.avoided)
    ready = [
        # A ready cold start goes last: calls that opt out can use no other.
        (round(scores.starts[position].import_seconds, 9), position or len(scores.starts), position)
        for checkpoint_id, count in worker.ready.items()
        if count > 0 and (position := scores.position.get(checkpoint_id)) is not None
    ]
    if ready:
        seconds, _, position = min(ready)
        if seconds <= _seconds_of(best):
            return scores.starts[position].from_ready()
    return best


def _fastest_made(scores: Scores, avoided: Collection[str]) -> Prediction:
    """Return the fastest of the ways that need no ready sandbox."""
    if scores.best.checkpoint_id not in avoided:
        return scores.best
    return min((start for start in scores.starts if start.checkpoint_id not in avoided), key=_seconds_of)


def _seconds_of(way: Prediction | None) -> float:
    """Return whole nanoseconds, as the scores were made: equal costs must be equal. Nothing known is worst."""
    return float("inf") if way is None else round(way.seconds, 9)


def _start(header: CallHeader, worker: WorkerState) -> Start:
    scores = worker.catalogue.scores(header.hints) if worker.catalogue else None
    if scores is None:
        return Start(None, None)
    if is_fixed(header):
        pin = header.options.checkpoint_id
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
