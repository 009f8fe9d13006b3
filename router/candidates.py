"""The workers as seen at one moment, arranged so that the best for a call is found without looking at each of them."""

import heapq
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from .catalogue import CompiledCatalogue
from .needs import Needs, Nobody, Refused, WorkerState, all_full, fitting

T = TypeVar("T")

Shelf = tuple[str | None, ...]
"""The workers with a ready sandbox of this checkpoint (``None``: started without one); ``()``: all workers."""

ALL: Final[Shelf] = ()


def turn(router: bytes, worker: bytes) -> int:
    """Return where a worker comes among equal ones in a router's order: another one for each router."""
    return zlib.crc32(worker, zlib.crc32(router))


class _Entry(NamedTuple):
    load: float
    turn: int
    name: str
    number: int
    worker: WorkerState


class Group:
    """Workers that serve one catalogue and avoid the same checkpoints, the least loaded of each shelf at hand.

    Workers only get fuller and their ready sandboxes fewer, so what is of no use on a shelf any more is dropped for
    good.
    """

    def __init__(self, needs: Needs, catalogue: CompiledCatalogue | None, avoided: frozenset[str]) -> None:
        self._needs = needs
        self.catalogue = catalogue
        self.avoided = avoided
        self._shelves: dict[Shelf, list[WorkerState]] = {ALL: []}
        self._heaps: dict[Shelf, list[_Entry]] = {}

    def add(self, worker: WorkerState) -> None:
        """Put a worker on its shelves."""
        self._shelves[ALL].append(worker)
        for checkpoint_id, count in worker.ready.items():
            if count > 0:
                self._shelves.setdefault((checkpoint_id,), []).append(worker)

    def ready_checkpoints(self) -> Iterable[str | None]:
        """Return the checkpoints of which some worker had a ready sandbox."""
        return [checkpoint_id for shelf in self._shelves for checkpoint_id in shelf]

    def least_loaded(self, shelf: Shelf) -> tuple[float, int, str, WorkerState] | None:
        """Return the least loaded worker of a shelf that has room, of equal ones the first by turn, then by name."""
        heap = self._heaps.get(shelf)
        if heap is None:
            workers = enumerate(self._shelves.get(shelf, ()))
            heap = self._heaps[shelf] = [
                _Entry(worker.load, worker.turn, worker.announcement.name, number, worker) for number, worker in workers
            ]
            heapq.heapify(heap)
        while heap:
            entry = heap[0]
            worker = entry.worker
            if not worker.has_room(self._needs) or not all(map(worker.is_ready, shelf)):
                heapq.heappop(heap)
            elif entry.load != worker.load:
                heapq.heapreplace(heap, entry._replace(load=worker.load))
            else:
                return entry.load, entry.turn, entry.name, worker
        return None


class Candidates:
    """The live workers as seen at one moment, and what was found out about them since."""

    def __init__(self, workers: Sequence[WorkerState]) -> None:
        self.workers = workers
        self._fitting: dict[Needs, list[WorkerState] | Nobody | Refused] = {}
        self._groups: dict[Needs, list[Group]] = {}
        self._full: dict[Needs, Nobody] = {}

    def fitting(self, needs: Needs) -> list[WorkerState] | Nobody | Refused:
        """Return the workers that can take a call with these needs as soon as they have room."""
        return _remembered(self._fitting, needs, lambda: fitting(needs, self.workers))

    def groups(self, needs: Needs) -> list[Group] | Nobody | Refused:
        """Return the same workers in groups."""
        found = self.fitting(needs)
        return _remembered(self._groups, needs, lambda: _grouped(needs, found)) if isinstance(found, list) else found

    def all_full(self, needs: Needs) -> Nobody:
        """Return what calls wait for when none of the workers that fit has room."""
        found = self.fitting(needs)
        assert isinstance(found, list)
        return _remembered(self._full, needs, lambda: all_full(needs, found, self.workers))

    def give_back(self, worker: WorkerState, memory_bytes: int | None, checkpoint_id: str | None) -> None:
        """Count no longer a call that was not placed on a worker after all."""
        worker.take(memory_bytes, checkpoint_id, calls=-1)
        # It may have been dropped from its shelves.
        self._groups.clear()
        self._full.clear()


def _remembered(known: dict[Needs, T], needs: Needs, find: Callable[[], T]) -> T:
    found = known.get(needs)
    if found is None:
        found = known[needs] = find()
    return found


def _grouped(needs: Needs, workers: Iterable[WorkerState]) -> list[Group]:
    groups: dict[tuple[CompiledCatalogue | None, frozenset[str]], Group] = {}
    for worker in workers:
        if worker.has_room(needs):
            key = worker.catalogue, worker.avoided
            if key not in groups:
                groups[key] = Group(needs, *key)
            groups[key].add(worker)
    return list(groups.values())
