"""What routers do: calls placed per second, and how long a call is in their hand, by what there is to choose from.

A real Redis and real routers. The workers are announced, with ready sandboxes, and begin and end their calls at once:
one process does that for all. Calls name eight modules each, and there are many more functions than a router remembers
the scores of. Redis, routers, submitter and workers share the machine.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.synchronize import Event
from typing import Any, NamedTuple

from redis import Redis

from readie.ledger.ledger import Ledger
from readie.ledger.result import encode_result
from readie.protocol import keys, task
from readie.protocol.announcement import Announcement
from readie.protocol.call import CallHeader, CallOptions, ImportHints, Placement
from readie.protocol.envelope import CallState, Envelope
from router.catalogue import CompiledCatalogue

from .catalogues import make_catalogue
from .cluster import ROOT, cpu_seconds, megabytes, redis_server
from .results import Section, Table
from .sampling import percentile

SLOTS = 16
FUNCTIONS = 5000
HINTS = 8
AT_ONCE = 100
RATE = 500
"""Calls a second for the latency: about a quarter of what a router can do."""
QUEUES_AT_ONCE = 50
_MOST_QUEUED = 1000


@dataclass(frozen=True)
class Fleet:
    """What there is to choose from, and who chooses."""

    workers: int = 50
    checkpoints: int = 16
    modules: int = 5000
    waiting: int = 0
    """Calls that none of the workers can take."""
    routers: int = 1


@dataclass(frozen=True)
class Amounts:
    """How much is measured of each fleet."""

    flood: int
    steady: int
    fleets: tuple[Fleet, ...]


_BASE = Fleet()
FULL = Amounts(
    flood=6000,
    steady=2000,
    fleets=(
        _BASE,
        *(replace(_BASE, workers=count) for count in (1, 10, 200, 1000)),
        *(replace(_BASE, checkpoints=count) for count in (1, 64)),
        *(replace(_BASE, modules=count) for count in (500, 20_000)),
        replace(_BASE, waiting=10_000),
        replace(_BASE, routers=2),
    ),
)


class Placed(NamedTuple):
    """One call: Redis clock seconds, and seconds in the router's hand."""

    submitted_at: float
    placed_at: float
    route_seconds: float


class Scripts:
    """The ledger's scripts, many runs in one round trip."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._shas = {name: redis.script_load(script.script) for name, script in Ledger(redis)._scripts.items()}  # noqa: SLF001

    def run(self, name: str, runs: list[tuple[list[str], list[Any]]]) -> list[Any]:
        """Run one script with each of these keys and arguments."""
        with self._redis.pipeline(transaction=False) as pipe:
            for script_keys, args in runs:
                pipe.evalsha(self._shas[name], len(script_keys), *script_keys, *args)
            return pipe.execute()


def submit(scripts: Scripts, calls: list[ImportHints], flavor: str = "default") -> None:
    """Submit calls as a client does."""
    runs: list[tuple[list[str], list[Any]]] = []
    body = task.encode_body(b"x" * 400)
    for hints in calls:
        call_id = uuid.uuid4().hex
        header = CallHeader(
            protocol=1,
            id=call_id,
            name="module.function",
            python="3.11",
            hints=hints,
            options=CallOptions(flavor=flavor),
            payload_bytes=400,
            payload_by_reference=False,
        )
        item = task.encode(header, body, "benchmark")
        runs.append(([keys.call(call_id)], [call_id, item, "client", "", "", header.name, "benchmark"]))
    scripts.run("submit", runs)


def work(url: str, workers: int, stop: Event, times: Any) -> None:
    """Begin and end the calls of all workers; what was measured of each goes to ``times``."""
    redis = Redis.from_url(url)
    scripts = Scripts(redis)
    before, after = encode_result(Envelope(id="call", state=CallState.DONE))
    queues = [keys.worker_queue(_name(number)) for number in range(workers)]
    at = 0
    while not stop.is_set():
        with redis.pipeline(transaction=False) as pipe:
            for queue in queues[at : at + QUEUES_AT_ONCE]:
                pipe.rpop(queue, SLOTS)
            items = [item for reply in pipe.execute() for item in reply or ()]
        at = 0 if at + QUEUES_AT_ONCE >= workers else at + QUEUES_AT_ONCE
        if not items:
            time.sleep(0.001)
            continue
        headers = [json.loads(item)["headers"][task.HEADER] for item in items]
        placements = [(header["id"], Placement.model_validate(header["placement"])) for header in headers]
        claims = scripts.run(
            "claim",
            [([keys.call(id_)], [id_, placed.attempt, placed.incarnation, "token"]) for id_, placed in placements],
        )
        scripts.run(
            "finish",
            [
                ([keys.call(id_)], [id_, placed.attempt, "done", before, after, 5, "0", "token"])
                for id_, placed in placements
            ],
        )
        times.send(
            [
                Placed(float(claim[0]), float(claim[1]), placed.route_seconds)
                for claim, (_, placed) in zip(claims, placements, strict=True)
                if claim is not None
            ]
        )


def _name(number: int) -> str:
    return f"worker{number}@benchmark"


class Running:
    """Routers that route, and what was submitted to them."""

    def __init__(self, redis: Redis, routers: list[subprocess.Popen[bytes]], times: Any, modules: list[str]) -> None:
        self._redis = redis
        self._scripts = Scripts(redis)
        self._times = times
        self._routers = routers
        self._functions = [
            ImportHints(imports=tuple(f"{name}.Thing" for name in random.sample(modules, HINTS)))
            for _ in range(FUNCTIONS)
        ]

    @property
    def cpu_seconds(self) -> float:
        """Processor time that the routers have had."""
        return sum(cpu_seconds(router.pid) for router in self._routers)

    @property
    def megabytes(self) -> float:
        """Memory of the largest router."""
        return max(megabytes(router.pid) for router in self._routers)

    def let_wait(self, count: int) -> None:
        """Submit calls that have to wait."""
        for _ in range(0, count, AT_ONCE):
            submit(self._scripts, random.choices(self._functions, k=AT_ONCE), flavor="full")
        while int(self._redis.zcard(keys.WAITING)) < count:
            time.sleep(0.01)

    def _gather(self, count: int) -> list[Placed]:
        found: list[Placed] = []
        while len(found) < count:
            if not self._times.poll(60):
                raise TimeoutError(f"{len(found)} of {count} calls ended, then nothing for a minute")
            found += self._times.recv()
        return found

    def flood(self, count: int) -> float:
        """Submit calls so fast that the queue is never empty; returns calls placed per second."""
        found: list[Placed] = []
        submitted = 0
        while submitted < count:
            if int(self._redis.llen(keys.SUBMIT_QUEUE)) < _MOST_QUEUED:
                submit(self._scripts, random.choices(self._functions, k=AT_ONCE))
                submitted += AT_ONCE
            else:
                time.sleep(0.005)
            while self._times.poll(0):
                found += self._times.recv()
        found += self._gather(submitted - len(found))
        placed = sorted(one.placed_at for one in found)
        return (len(placed) - 1) / (placed[-1] - placed[0])

    def steady(self, count: int) -> list[Placed]:
        """Submit calls at a steady rate."""
        found: list[Placed] = []
        began = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, began + number / RATE - time.monotonic()))
            submit(self._scripts, [random.choice(self._functions)])
            # Workers that can't tell what they measured would stand still.
            while self._times.poll(0):
                found += self._times.recv()
        return found + self._gather(count - len(found))


@contextlib.contextmanager
def _running(fleet: Fleet) -> Iterator[Running]:
    with redis_server() as url, Redis.from_url(url) as redis:
        catalogue = make_catalogue(random.Random(1), modules=fleet.modules, checkpoints=fleet.checkpoints)
        ledger = Ledger(redis)
        ledger.publish_catalogue(catalogue)
        ids = tuple(checkpoint.id for checkpoint in catalogue.checkpoints)
        for number in range(fleet.workers + 1):
            # The last one takes nothing: calls of its flavor wait.
            last = number == fleet.workers
            announcement = Announcement(
                name=_name(number),
                draining=last,
                incarnation=uuid.uuid4().hex,
                pid=1,
                slots=SLOTS,
                flavor="full" if last else "default",
                python="3.11",
                runsc_version="benchmark",
                generation=catalogue.generation,
                catalogue=catalogue.digest(),
                checkpoints=ids,
            )
            ledger.announce(announcement, 100_000, {None: 1, ids[0]: 2, ids[-1]: 1})
        stop = multiprocessing.get_context("spawn").Event()
        receiver, sender = multiprocessing.get_context("spawn").Pipe(duplex=False)
        workers = multiprocessing.get_context("spawn").Process(target=work, args=(url, fleet.workers, stop, sender))
        workers.start()
        environment = {**os.environ, "READIE_REDIS_URL": url, "READIE_LOG_LEVEL": "WARNING"}
        routers = [
            subprocess.Popen(
                [sys.executable, "-m", "router"], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            for _ in range(fleet.routers)
        ]  # fmt: skip
        try:
            yield Running(redis, routers, receiver, list(catalogue.modules))
        finally:
            for router in routers:
                router.terminate()
                router.wait()
            stop.set()
            workers.join()


def scoring(modules: int, checkpoints: int, calls: int) -> list[float]:
    """Return the seconds that the scores of each call take when none is remembered."""
    chance = random.Random(1)
    catalogue = make_catalogue(chance, modules=modules, checkpoints=checkpoints)
    compiled = CompiledCatalogue(catalogue)
    names = list(catalogue.modules)
    seconds = []
    for _ in range(calls):
        hints = ImportHints(imports=tuple(f"{name}.Thing" for name in chance.sample(names, HINTS)))
        began = time.perf_counter()
        compiled.scores(hints)
        seconds.append(time.perf_counter() - began)
    return seconds


def run(amounts: Amounts) -> Section:
    """Measure."""
    section = Section("router", "What a router does", {"hints of a call": HINTS, "slots of a worker": SLOTS})
    random.seed(1)
    rows = []
    for fleet in amounts.fleets:
        with _running(fleet) as running:
            running.flood(AT_ONCE * 5)
            running.let_wait(fleet.waiting)
            before = running.cpu_seconds
            rate = running.flood(amounts.flood)
            per_call = (running.cpu_seconds - before) / amounts.flood
            steady = running.steady(amounts.steady)
            memory = running.megabytes
        scored = scoring(fleet.modules, fleet.checkpoints, amounts.steady // 2)
        waits = [one.placed_at - one.submitted_at for one in steady]
        labels = vars(fleet)
        section.add({**labels, "what": "calls placed"}, "1/s", [rate])
        section.add({**labels, "what": "processor time of a call"}, "s", [per_call])
        section.add({**labels, "what": "submitted to placed"}, "s", waits)
        section.add({**labels, "what": "in the router's hand"}, "s", [one.route_seconds for one in steady])
        section.add({**labels, "what": "scoring"}, "s", scored)
        section.add({**labels, "what": "memory"}, "MB", [memory])
        rows.append(
            [
                *labels.values(),
                rate,
                1e3 * per_call,
                1e3 * statistics.median(waits),
                1e3 * percentile(waits, 99),
                1e6 * statistics.median(scored),
                memory,
            ]
        )
    section.tables.append(
        Table(
            "By what there is to choose from",
            [
                *("workers", "checkpoints", "modules", "waiting", "routers", "calls placed a second", "CPU ms a call"),
                *(f"placed after, p50 ms at {RATE}/s", "p99 ms", "scoring µs", "router MB"),
            ],
            rows,
            "Redis, routers, the submitting client and the stand-ins of the workers share the machine's cores.",
        )
    )
    return section
