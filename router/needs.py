"""What a call needs of a worker, and which workers can give it. Data in, data out."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from readie.protocol.announcement import Announcement
from readie.protocol.call import CallHeader
from readie.protocol.codes import ErrorCode
from readie.sizes import format_bytes

from .catalogue import CompiledCatalogue
from .scoring import id_order

NO_WORKER: Final = "no worker is running"
_NO_BOUNDED_CPU: Final = (
    "no worker that fits can bound CPU, for they have no control groups (`readie doctor` says why); call without cpu="
)


class Needs(NamedTuple):
    """What decides which workers can take a call. Calls with equal needs wait as one group."""

    flavor: str
    python: str
    checkpoint_id: str | None
    """The pinned one."""
    memory_bytes: int | None
    """``None``: what the worker gives by itself."""
    opens_session: bool = False
    bounded_cpu: bool = False
    """Whether it asks for a number of cores."""
    gpu: bool = False

    @classmethod
    def of(cls, header: CallHeader) -> "Needs":
        """Return what a call needs."""
        options = header.options
        return cls(
            options.flavor,
            header.python,
            options.checkpoint_id,
            options.memory_bytes,
            header.session is not None,
            options.cpu is not None,
            options.gpu,
        )

    @classmethod
    def of_group(cls, group: str) -> "Needs":
        """Return the needs that a group is named after.

        Raises:
            ValueError: no group of ours has that name.
        """
        try:
            return cls(*json.loads(group))
        except TypeError as error:
            raise ValueError(f"not a group of calls: {group[:100]!r}") from error

    def group(self) -> str:
        """Return the name of the group of calls that need this."""
        return json.dumps(self, separators=(",", ":"))


@dataclass(slots=True)
class WorkerState:
    """A live worker as a router sees it. What a router places there, it counts here until it looks again."""

    announcement: Announcement
    catalogue: CompiledCatalogue | None
    """``None``: it serves no checkpoints, or its catalogue could not be read."""
    busy: int
    """Calls it holds."""
    reserved_bytes: int = 0
    """Memory that these reserve."""
    ready: dict[str | None, int] = field(default_factory=dict)
    """Sandboxes that wait for a call, by the checkpoint they were restored from; ``None``: started without one."""
    avoided: frozenset[str] = frozenset()
    """Checkpoints that it failed to restore lately."""
    sessions: int = 0
    """Sessions that it keeps or is to open."""
    turn: int = 0
    """Where it comes among equal ones: each router has an order of its own, so that they don't all choose the same."""

    @property
    def free(self) -> int:
        """Slots that can take a call."""
        return 0 if self.announcement.draining else self.announcement.slots - self.busy

    @property
    def load(self) -> float:
        """Calls it holds, by its slots."""
        return self.busy / self.announcement.slots

    @property
    def has_room_for_session(self) -> bool:
        """Whether it can keep one more."""
        return self.sessions < self.announcement.max_sessions

    def has_room(self, needs: Needs) -> bool:
        """Whether it can take a call with these needs now."""
        announcement = self.announcement
        if announcement.draining or self.busy >= announcement.slots:
            return False
        if needs.opens_session and not self.has_room_for_session:
            return False
        if announcement.memory_bytes is None:
            return True
        return self.reserved_bytes + self.counted_bytes(needs.memory_bytes) <= announcement.memory_bytes

    def counted_bytes(self, memory_bytes: int | None) -> int:
        """Return what a call reserves that asks for this much memory."""
        if self.announcement.memory_bytes is None:
            return 0
        return memory_bytes or self.announcement.call_memory_bytes or 0

    def is_ready(self, checkpoint_id: str | None) -> bool:
        """Whether a sandbox waits for a call that was restored from this checkpoint, or started without one."""
        return self.ready.get(checkpoint_id, 0) > 0

    def take(self, memory_bytes: int | None, checkpoint_id: str | None, calls: int = 1) -> None:
        """Count a call that was placed here, or (``calls=-1``) one that was not after all."""
        self.busy += calls
        self.reserved_bytes += calls * self.counted_bytes(memory_bytes)
        if checkpoint_id in self.ready:
            self.ready[checkpoint_id] -= calls


@dataclass(frozen=True, slots=True)
class Nobody:
    """No worker can take the call now."""

    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    """No worker that is there can ever take the call."""

    code: ErrorCode
    message: str
    for_want_of_workers: bool = False
    """Whether the workers of a whole kind are missing. A call that has been waiting for them goes on waiting: they may
    just be starting again."""


def fitting(needs: Needs, workers: Sequence[WorkerState]) -> list[WorkerState] | Nobody | Refused:
    """Return the workers that can take a call with these needs as soon as they have room."""
    if not workers:
        return Nobody(NO_WORKER)
    of_flavor = [worker for worker in workers if worker.announcement.flavor == needs.flavor]
    if not of_flavor:
        return Refused(ErrorCode.INVALID_REQUEST, _unknown_flavor(needs.flavor, workers), for_want_of_workers=True)
    of_python = [worker for worker in of_flavor if worker.announcement.python == needs.python]
    if not of_python:
        return Refused(ErrorCode.INCOMPATIBLE_PYTHON, _other_pythons(needs.python, of_flavor), for_want_of_workers=True)
    if needs.gpu and not any(worker.announcement.gpu for worker in of_python):
        return Refused(ErrorCode.RESOURCE_EXHAUSTED, _no_gpu(needs.flavor), for_want_of_workers=True)
    return _with_resources(needs, [worker for worker in of_python if worker.announcement.gpu or not needs.gpu])


def _with_resources(needs: Needs, of_python: list[WorkerState]) -> list[WorkerState] | Refused:
    pin, memory = needs.checkpoint_id, needs.memory_bytes
    found = of_python
    if pin is not None:
        found = [worker for worker in found if worker.catalogue and pin in worker.catalogue.checkpoint_ids]
        if not found:
            return Refused(ErrorCode.INVALID_REQUEST, _unknown_pin(pin, of_python))
    if memory is not None:
        largest = [worker for worker in found if memory <= (worker.announcement.memory_bytes or memory)]
        if not largest:
            return Refused(ErrorCode.RESOURCE_EXHAUSTED, _too_much_memory(memory, found))
        found = largest
    return _bounding_cpu(found) if needs.bounded_cpu else found


def _bounding_cpu(workers: Sequence[WorkerState]) -> list[WorkerState] | Refused:
    found = [worker for worker in workers if worker.announcement.bounds_cpu]
    return found or Refused(ErrorCode.RESOURCE_EXHAUSTED, _NO_BOUNDED_CPU, for_want_of_workers=True)


def all_full(needs: Needs, fit: Sequence[WorkerState], workers: Sequence[WorkerState]) -> Nobody:
    """Return what calls wait for when none of the workers that fit has room."""
    kinds = []
    if len(fit) < len(workers):
        if any(worker.announcement.flavor != needs.flavor for worker in workers):
            kinds.append(f"of flavor {needs.flavor}")
        if any(worker.announcement.python != needs.python for worker in workers):
            kinds.append(f"with Python {needs.python}")
        if needs.checkpoint_id is not None:
            kinds.append(f"that have {needs.checkpoint_id}")
    who = " ".join(["all workers", *kinds])
    if not any(worker.free > 0 for worker in fit):
        return Nobody(f"{who} are full")
    if needs.opens_session and not any(worker.free > 0 and worker.has_room_for_session for worker in fit):
        return Nobody(f"{who} have as many sessions as they keep")
    lacking = "too little" if needs.memory_bytes is None else f"less than {format_bytes(needs.memory_bytes)} of"
    return Nobody(f"{who} have {lacking} memory free")


def _unknown_flavor(flavor: str, workers: Iterable[WorkerState]) -> str:
    there = ", ".join(sorted({worker.announcement.flavor for worker in workers}))
    return f"no worker serves the flavor {flavor!r}; the running workers serve {there}"


def _other_pythons(python: str, workers: Iterable[WorkerState]) -> str:
    there = ", ".join(sorted({worker.announcement.python for worker in workers}))
    return (
        f"the call comes from Python {python} and the running workers have Python {there}; "
        "call from one of these versions, or start a worker whose flavor has yours"
    )


def _no_gpu(flavor: str) -> str:
    return (
        f"the call asks for a GPU (gpu=True) and no worker of the flavor {flavor!r} has one; leave gpu out, or start a "
        "worker whose sandboxes have a GPU"
    )


def _unknown_pin(pin: str, workers: Iterable[WorkerState]) -> str:
    listed = {
        checkpoint_id for worker in workers if worker.catalogue for checkpoint_id in worker.catalogue.checkpoint_ids
    }
    there = f"there are {', '.join(sorted(listed, key=id_order))}" if listed else "no worker serves any checkpoint now"
    return f"no worker lists the checkpoint {pin!r}; {there}"


def _too_much_memory(memory_bytes: int, workers: Iterable[WorkerState]) -> str:
    most = max(worker.announcement.memory_bytes or 0 for worker in workers)
    return f"the call asks for {format_bytes(memory_bytes)} of memory; the largest worker has {format_bytes(most)}"
