"""What a call costs beside what a function does, by the size of its argument; against what one would pick instead.

Every system has a worker of its own, all of them on one Redis, and a task that returns the length of its argument. They
take turns in one run. Readie's are in an open session (``warm``) or in a sandbox of their own that waits for them
(``ready``).
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from statistics import median

from .cluster import Cluster, cluster
from .peers import PEERS, SLOTS, Submit, Wait
from .results import Check, Ratio, Section, Table
from .sampling import percentile, ratio_of_medians

WARM, READY, CELERY = "readie, warm", "readie, ready", "celery"
_TURN = 25
_LARGE = 1 << 20
_SECONDS = 120


def size(argument: bytes) -> int:
    """Return the length."""
    return len(argument)


@dataclass(frozen=True)
class Amounts:
    """How much is measured."""

    calls: dict[int, int]
    """By argument bytes, of each system."""
    ready_calls: int
    flood_calls: int
    """Of each system, for each number in flight, at a time."""
    floods: int


FULL = Amounts({0: 500, 1_000: 300, 100_000: 200, 10_000_000: 12, 100_000_000: 3}, 12, 400, 3)
SIZES = {0: "nothing", 1_000: "1 KB", 100_000: "100 KB", 10_000_000: "10 MB", 100_000_000: "100 MB"}
IN_FLIGHT = (1, 10, 100)


def warm(where: Cluster, sessions: int, stack: contextlib.ExitStack) -> Submit:
    """Return what submits to so many open sessions in turn, of workers that have done with making sandboxes."""
    function = where.remote(size)
    opened = [where.session() for _ in range(sessions)]
    for session in opened:
        stack.callback(session.close)
    functions = [function.options(session=session) for session in opened]
    for one in functions:
        one.spawn(b"").result(_SECONDS)
    where.settle()
    turns = cycle(functions)

    def submit(argument: bytes) -> Wait:
        return partial(next(turns).spawn(argument).result, _SECONDS)

    return submit


def run(amounts: Amounts, peers: tuple[str, ...] = tuple(PEERS)) -> Section:
    """Measure."""
    section = Section("calls", "What a call costs", {"slots": SLOTS, "in turns of": _TURN})
    with cluster(slots=SLOTS) as where, contextlib.ExitStack() as stack:
        one_session = warm(where, 1, stack)
        peer_ways = {name: stack.enter_context(PEERS[name](where.redis_url)) for name in peers}
        # Calls in one session run one after another, as they are to; as many sessions as slots compare with threads.
        flooded = {WARM: warm(where, SLOTS, stack), **peer_ways}
        seconds = {
            bytes_: _round_trips({WARM: one_session, **peer_ways}, bytes_, calls)
            for bytes_, calls in amounts.calls.items()
        }
        fresh = _fresh(where)
        for bytes_ in amounts.calls:
            seconds[bytes_][READY] = [fresh(bytes_) for _ in range(amounts.ready_calls if bytes_ < _LARGE else 3)]
        rates = _floods({**flooded, READY: _submit_fresh(where)}, amounts)
    _fill(section, seconds, rates)
    return section


def _round_trips(ways: dict[str, Submit], bytes_: int, calls: int) -> dict[str, list[float]]:
    """Return the seconds of each call of each way; the ways take turns."""
    argument = bytes(bytes_)
    turn = _TURN if bytes_ < _LARGE else 1
    # Celery can't send 100 MB to a Redis with its default limits.
    ways = {name: submit for name, submit in ways.items() if _can(submit, argument, turn)}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    while len(seconds[WARM]) < calls:
        for name, submit in ways.items():
            for _ in range(turn):
                began = time.perf_counter()
                if submit(argument)() != bytes_ and name != "redis lists":
                    raise RuntimeError(f"{name} returned something else")
                seconds[name].append(time.perf_counter() - began)
    return seconds


def _can(submit: Submit, argument: bytes, turn: int) -> bool:
    try:
        for _ in range(turn):
            submit(argument)()
    except Exception as error:
        print(f"{len(argument)} bytes: {error!r}", file=sys.stderr)
        return False
    return True


def _fresh(where: Cluster) -> Callable[[int], float]:
    function = where.remote(size)
    for _ in range(5):
        function(b"")

    def call(bytes_: int) -> float:
        argument = bytes(bytes_)
        where.settle("checkpoint_0")
        began = time.perf_counter()
        call = function.spawn(argument)
        call.result(_SECONDS)
        seconds = time.perf_counter() - began
        if call.report().pool != "ready":
            raise RuntimeError(f"no ready sandbox: {call.report()}")
        return seconds

    return call


def _submit_fresh(where: Cluster) -> Submit:
    function = where.remote(size)
    return lambda argument: partial(function.spawn(argument).result, _SECONDS)


def _floods(ways: dict[str, Submit], amounts: Amounts) -> dict[str, dict[int, list[float]]]:
    """Return calls per second by way and number in flight."""
    rates: dict[str, dict[int, list[float]]] = {name: defaultdict(list) for name in ways}
    for _ in range(amounts.floods):
        for in_flight in IN_FLIGHT:
            for name, submit in ways.items():
                # A sandbox of its own for each call takes a hundred times as long.
                count = amounts.flood_calls // 8 if name == READY else amounts.flood_calls
                rates[name][in_flight].append(flood(submit, count, in_flight))
    return rates


def flood(submit: Submit, calls: int, in_flight: int, argument: bytes = b"") -> float:
    """Return calls per second with so many under way at a time."""
    waiting: deque[Wait] = deque()
    began = time.perf_counter()
    for _ in range(calls):
        if len(waiting) == in_flight:
            waiting.popleft()()
        waiting.append(submit(argument))
    while waiting:
        waiting.popleft()()
    return calls / (time.perf_counter() - began)


def _fill(
    section: Section, seconds: dict[int, dict[str, list[float]]], rates: dict[str, dict[int, list[float]]]
) -> None:
    for bytes_, of in seconds.items():
        for name, values in of.items():
            section.add({"system": name, "bytes": bytes_}, "s", values)
    for name, by_number in rates.items():
        for in_flight, values in by_number.items():
            section.add({"system": name, "in flight": in_flight}, "1/s", values)
    nothing = seconds[0]
    section.tables.append(
        Table(
            "A task that does nothing",
            ["system", "p50 ms", "p99 ms", *(f"calls a second, {number} in flight" for number in IN_FLIGHT)],
            [
                [
                    name,
                    1e3 * median(values),
                    1e3 * percentile(values, 99),
                    *(median(rates[name][number]) for number in IN_FLIGHT),
                ]
                for name, values in nothing.items()
            ],
            f"Calls in flight of `{WARM}` are in {SLOTS} sessions, but for the one at a time.",
        )
    )
    section.tables.append(
        Table(
            "By argument, p50 (p99) in milliseconds",
            ["system", *(SIZES[bytes_] for bytes_ in seconds)],
            [
                [
                    name,
                    *(
                        f"{_shown(median(of[name]))} ({_shown(percentile(of[name], 99))})" if name in of else "fails"
                        for of in seconds.values()
                    ),
                ]
                for name in nothing
            ],
        )
    )
    for bytes_, of in seconds.items():
        if CELERY not in of:
            continue
        ratio = ratio_of_medians(of[WARM], of[CELERY])
        what = f"{SIZES[bytes_]}: warm / celery"
        if bytes_ in {0, 10_000_000}:
            section.ratios[what] = Ratio(ratio.value, "lower")
        if bytes_ == 0:
            section.checks.append(Check(what, ratio.value, "at most", 1.25, ratio.low, ratio.high))


def _shown(seconds: float) -> str:
    return f"{1e3 * seconds:,.0f}" if seconds >= 0.1 else f"{1e3 * seconds:.3g}"
