"""A cluster in which time is a number: the router's own choice, the workers' own pool decisions, simulated sandboxes.

What is simulated is what takes time and does not decide: creating, restoring and importing take the seconds that the
catalogue and measurements say, a call holds its slot for the seconds it runs, and each worker fills its pools in one
thread, one sandbox at a time, created ones first, giving way to calls that start. Cores are not: what runs at once does
not slow down.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

from benchmarks.week import Call, Week
from readie.protocol.announcement import Announcement
from readie.protocol.call import CallHeader, CallOptions, ImportHints
from router.candidates import Candidates, turn
from router.catalogue import CompiledCatalogue
from router.needs import Nobody, Refused, WorkerState
from router.placement import Chosen
from workers.sandbox.demand import Demand
from workers.sandbox.stock import Step, next_step
from workers.sandbox.wanted import Held, Source, Wanted

Met = Literal["ready", "created", "none"]
PYTHON = "3.11"
FLEET_MAX_AGE_SECONDS = 0.05
_SHORT_LOOK_SECONDS = 0.005
"""As in ``router.fleet``."""
SHORT_CALL_SECONDS = 0.02
"""As in ``workers.sandbox.traffic``: pools are filled when no call came for as long."""


@dataclass(frozen=True)
class Costs:
    """Seconds of what no catalogue says."""

    ready_seconds: float
    """From a ready sandbox to the function's first line."""
    create_seconds: float
    """Of an empty sandbox."""


class Started(NamedTuple):
    """How a call began."""

    call: Call
    wait_seconds: float
    """For room."""
    start_seconds: float
    """From then to the function's first line."""
    checkpoint_id: str | None
    met: Met


Choose = Callable[[CallHeader, Candidates], Chosen | Nobody | Refused]


@dataclass
class Worker:
    """One simulated worker."""

    announcement: Announcement
    catalogue: CompiledCatalogue
    sources: Mapping[str | None, Source]
    wanted: Wanted
    ready_bytes: int
    most_created: int
    created: int = 0
    ready: dict[str | None, int] = field(default_factory=dict)
    busy: int = 0
    starting: int = 0
    last_call_seconds: float = float("-inf")
    filling: bool = False

    def seen(self, router: str) -> WorkerState:
        """Return what a router sees of it."""
        order = turn(router.encode(), self.announcement.name.encode())
        return WorkerState(self.announcement, self.catalogue, self.busy, ready=dict(self.ready), turn=order)

    def next_step(self, now: float) -> Step | None:
        """Return what the pool of ready sandboxes does next."""
        held = {name: Held(self.ready.get(name, 0), source.memory_bytes) for name, source in self.sources.items()}
        return next_step(self.wanted.kinds(held, lambda _: True, now), self.ready_bytes)


def make_workers(
    count: int,
    catalogue: CompiledCatalogue,
    sources: Mapping[str | None, Source],
    *,
    slots: int,
    ready_bytes: int,
    created: int,
) -> list[Worker]:
    """Return equal workers with empty pools."""
    return [
        Worker(
            Announcement(
                name=f"worker{number:05d}",
                incarnation="1",
                pid=1,
                slots=slots,
                flavor="default",
                python=PYTHON,
                runsc_version="",
                generation="simulated",
                catalogue="simulated",
            ),
            catalogue,
            sources,
            Wanted(sources, Demand()),
            ready_bytes,
            created,
        )
        for number in range(count)
    ]


def oldest_seconds(look_seconds: float) -> float:
    """Return how old a router lets its picture of the workers get."""
    return FLEET_MAX_AGE_SECONDS * max(1.0, look_seconds / _SHORT_LOOK_SECONDS)


def header(hints: ImportHints, number: int) -> CallHeader:
    """Return the header of a call with these hints."""
    return CallHeader(
        protocol=1,
        id=f"c{number}",
        name="f",
        python=PYTHON,
        hints=hints,
        options=CallOptions(),
        payload_bytes=0,
        payload_by_reference=False,
    )


@dataclass
class _Router:
    """What one router has seen."""

    name: str
    candidates: Candidates
    seen_at: float = float("-inf")


class _Queued(NamedTuple):
    header: CallHeader
    call: Call


class Cluster:
    """Runs calls on simulated workers.

    Args:
        workers: those.
        costs: what takes how long.
        choose: the router's decision, given the workers as last seen.
        restore_seconds: of each checkpoint; ``None``: Python itself.
        routers: how many take calls in turn, each with a picture of its own.
        look_seconds: what a look at all workers takes a router.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        costs: Costs,
        choose: Choose,
        restore_seconds: Mapping[str | None, float],
        *,
        routers: int = 1,
        look_seconds: float = 0.0,
    ) -> None:
        self._workers = workers
        self._by_name = {worker.announcement.name: worker for worker in workers}
        self._costs = costs
        self._choose = choose
        self._restore_seconds = restore_seconds
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._waiting: deque[_Queued] = deque()
        self._routers = itertools.cycle([_Router(f"router{number}", Candidates([])) for number in range(routers)])
        self._oldest_seconds = oldest_seconds(look_seconds)
        self._running = 0
        self.now = 0.0
        self.started: list[Started] = []
        self.looks = 0

    def run(self, week: Week) -> list[Started]:
        """Return how each call began, in the order in which they did."""
        headers = [header(hints, number) for number, hints in enumerate(week.kinds)]
        self.now = week.calls[0].at_seconds
        for worker in self._workers:
            self._fill(worker)
        for call in week.calls:
            while self._events and self._events[0][0] <= call.at_seconds:
                self._step()
            self.now = call.at_seconds
            queued = _Queued(headers[call.kind], call)
            if self._waiting or not self._place(queued):
                self._waiting.append(queued)
        while self._waiting or self._running:
            self._step()
        return self.started

    def _step(self) -> None:
        self.now, _, act = heapq.heappop(self._events)
        act()

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), act))

    def _look(self, router: _Router) -> None:
        self.looks += 1
        router.candidates = Candidates([worker.seen(router.name) for worker in self._workers])
        router.seen_at = self.now

    def _place(self, queued: _Queued) -> bool:
        router = next(self._routers)
        if self.now - router.seen_at > self._oldest_seconds:
            self._look(router)
        while True:
            decision = self._choose(queued.header, router.candidates)
            if isinstance(decision, Chosen):
                worker = self._by_name[decision.worker.announcement.name]
                if worker.busy < worker.announcement.slots:
                    decision.worker.take(None, decision.checkpoint_id)
                    self._start(worker, queued, decision.checkpoint_id)
                    return True
            elif router.seen_at == self.now:
                return False
            # What was seen is old; the ledger knows better.
            self._look(router)

    def _start(self, worker: Worker, queued: _Queued, checkpoint_id: str | None) -> None:
        call = queued.call
        worker.busy += 1
        self._running += 1
        worker.last_call_seconds = self.now
        worker.wanted.record(checkpoint_id, self.now)
        scores = worker.catalogue.scores(queued.header.hints)
        lacking = scores.starts[scores.position[checkpoint_id]].import_seconds
        met: Met = "none"
        seconds = self._costs.ready_seconds
        if worker.ready.get(checkpoint_id, 0) > 0:
            worker.ready[checkpoint_id] -= 1
            met = "ready"
        else:
            seconds += self._restore_seconds[checkpoint_id]
            if worker.created:
                worker.created -= 1
                met = "created"
            else:
                seconds += self._costs.create_seconds
            worker.starting += 1
            self._after(seconds, partial(self._begun, worker))
        start = seconds + lacking
        self.started.append(Started(call, self.now - call.at_seconds, start, checkpoint_id, met))
        self._after(start + call.run_seconds, partial(self._end, worker))
        self._fill(worker)

    def _begun(self, worker: Worker) -> None:
        worker.starting -= 1
        self._fill(worker)

    def _end(self, worker: Worker) -> None:
        worker.busy -= 1
        self._running -= 1
        while self._waiting and self._place(self._waiting[0]):
            self._waiting.popleft()

    def _fill(self, worker: Worker) -> None:
        """Begin the next sandbox to make ahead, if nothing stands against it."""
        if worker.filling or worker.starting:
            return
        rest = worker.last_call_seconds + SHORT_CALL_SECONDS - self.now
        if rest > 0:
            worker.filling = True
            self._after(rest, partial(self._filled, worker))
        elif worker.created < worker.most_created:
            worker.filling = True
            self._after(self._costs.create_seconds, partial(self._created, worker))
        else:
            self._fill_ready(worker)

    def _fill_ready(self, worker: Worker) -> None:
        while (step := worker.next_step(self.now)) is not None:
            if step.action == "evict":
                worker.ready[step.checkpoint_id] -= 1
                continue
            seconds = self._restore_seconds[step.checkpoint_id] + self._costs.ready_seconds
            if worker.created:
                worker.created -= 1
            else:
                seconds += self._costs.create_seconds
            worker.filling = True
            self._after(seconds, partial(self._made, worker, step.checkpoint_id))
            return

    def _filled(self, worker: Worker) -> None:
        worker.filling = False
        self._fill(worker)

    def _created(self, worker: Worker) -> None:
        worker.created += 1
        self._filled(worker)

    def _made(self, worker: Worker, checkpoint_id: str | None) -> None:
        worker.ready[checkpoint_id] = worker.ready.get(checkpoint_id, 0) + 1
        self._filled(worker)
