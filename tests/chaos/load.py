"""Calls of every kind, from a process that may be killed: ``python -m tests.chaos.load URL JOURNAL MARKERS NAME SEED``.

Each call is written to the journal when it is submitted and when it has ended, so that whoever reads it knows which
calls a killed process left behind. SIGTERM ends the process once its calls have ended.
"""

from __future__ import annotations

import contextlib
import functools
import json
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import readie
from readie import remote
from readie.call import Call
from readie.stream import Stream

THREADS: Final = 4
LONGEST_SECONDS: Final = 120.0
"""A call that has not ended by then hangs."""
LARGE_BYTES: Final = 100_000
CALLS_OF_A_SESSION: Final = 3
YIELDED: Final = 5
RETRIES: Final = 2


def _ran(marker: str) -> None:
    Path(marker).read_text()


@remote
def short(marker: str, number: int) -> int:
    """Return at once."""
    _ran(marker)
    return 2 * number


@remote
def long(marker: str, number: int) -> int:
    """Take a while."""
    _ran(marker)
    time.sleep(1 + number % 3)
    return 2 * number


@remote
def large(marker: str, number: int) -> bytes:
    """Return much."""
    _ran(marker)
    return bytes([number % 256]) * LARGE_BYTES


@remote
def failing(marker: str, number: int) -> int:
    """Raise."""
    _ran(marker)
    raise ValueError(str(number))


@remote(timeout=1)
def slow(marker: str, number: int) -> int:
    """Take too long."""
    _ran(marker)
    time.sleep(60)
    return number


@remote
def unwanted(marker: str, number: int) -> int:
    """Run until it is cancelled."""
    _ran(marker)
    time.sleep(60)
    return number


@remote(disable_optimized_execution=True)
def cold(marker: str, number: int) -> int:
    """Start without a checkpoint."""
    _ran(marker)
    return 2 * number


@remote(checkpoint_id="checkpoint_1")
def pinned(marker: str, number: int) -> int:
    """Start from a checkpoint that the suite may damage."""
    _ran(marker)
    return 2 * number


@remote(expires=1)
def expiring(marker: str, number: int) -> int:
    """Begin soon or never."""
    _ran(marker)
    return 2 * number


@remote(retries=RETRIES)
def retried(marker: str, number: int) -> int:
    """Take a while, again if need be."""
    _ran(marker)
    time.sleep(number % 3)
    return 2 * number


@remote
def counting(marker: str, number: int) -> int:
    """Count the calls of its session."""
    global total  # noqa: PLW0603 - that is what sessions are for
    _ran(marker)
    total = globals().get("total", 0) + 1
    return int(total)


@remote
def yielding(marker: str, number: int) -> Iterator[int]:
    """Yield while it runs."""
    _ran(marker)
    for value in range(YIELDED):
        time.sleep(0.1)
        yield number + value


KINDS: Final = {
    "short": (short, 8),
    "long": (long, 3),
    "large": (large, 2),
    "failing": (failing, 2),
    "slow": (slow, 1),
    "unwanted": (unwanted, 1),
    "cold": (cold, 1),
    "pinned": (pinned, 2),
    "expiring": (expiring, 1),
    "retried": (retried, 2),
    "counting": (counting, 2),
    "yielding": (yielding, 2),
}
"""Functions, and how often each is called."""


def value_of(kind: str, number: int) -> str:
    """Return what tells the right value of a call."""
    match kind:
        case "large":
            return describe(bytes([number % 256]) * LARGE_BYTES)
        case "counting":
            return describe(number)
        case "yielding":
            return describe([number + value for value in range(YIELDED)])
        case "unwanted":
            # Its client was killed before it cancelled.
            return describe(number)
    return describe(2 * number)


def describe(value: object) -> str:
    """Return a short text that differs for other values."""
    return f"{len(value)} bytes of {value[0]}" if isinstance(value, bytes) and value else repr(value)


class Load:
    """One client.

    Args:
        journal: where the calls are written.
        markers: folder of the files that functions read.
        name: unique.
        seed: of everything random.
    """

    def __init__(self, journal: Path, markers: Path, name: str, seed: int) -> None:
        self._journal = journal.open("a", buffering=1)
        self._markers = markers
        self._name = name
        self._seed = seed
        self._lock = threading.Lock()
        self._number = 0
        self._stop = threading.Event()

    def run(self) -> None:
        """Call until SIGTERM."""
        signal.signal(signal.SIGTERM, lambda *_: self._stop.set())
        threads = [threading.Thread(target=self._work, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _write(self, **entry: object) -> None:
        with self._lock:
            self._journal.write(json.dumps({**entry, "at": time.time()}) + "\n")

    def _work(self, thread: int) -> None:
        chance = random.Random(f"{self._seed} {thread}")
        kinds = [kind for kind, (_, share) in KINDS.items() for _ in range(share)]
        while not self._stop.is_set():
            with self._lock:
                self._number += 1
                number = self._number
            kind = chance.choice(kinds)
            if kind == "counting":
                self._session(chance, number)
            else:
                self._one(chance, kind, f"{self._name}-{number}", number, KINDS[kind][0])
            # SIGTERM must find time even when Redis is away.
            self._stop.wait(chance.random() * 0.1)

    def _session(self, chance: random.Random, number: int) -> None:
        with contextlib.suppress(readie.ReadieError), readie.session(idle_ttl=30) as session:
            for count in range(1, CALLS_OF_A_SESSION + 1):
                marker = f"{self._name}-{number}-{count}"
                if not self._one(chance, "counting", marker, count, counting.options(session=session)):
                    break

    def _one(self, chance: random.Random, kind: str, marker: str, number: int, function: Any) -> bool:
        """Make one call; returns whether it was submitted."""
        path = self._markers / marker
        path.write_text("x")
        self._write(marker=marker, event="submits", kind=kind, number=number)
        try:
            stream: Stream[int] | None = function(str(path), number) if kind == "yielding" else None
            call: Call[Any] = stream.begin() if stream is not None else function.spawn(str(path), number)
        except readie.ReadieError as error:
            self._write(marker=marker, event="refused", outcome=f"{type(error).__name__}: {error}")
            return False
        self._write(marker=marker, event="submitted", id=call.id)
        if kind == "unwanted":
            self._stop.wait(chance.random() * 3)
            self._cancel(call)
        read = None if stream is None else functools.partial(_read, stream)
        self._write(marker=marker, event="ended", outcome=outcome_of(call, LONGEST_SECONDS, read))
        return True

    def _cancel(self, call: Call[Any]) -> None:
        deadline = time.monotonic() + LONGEST_SECONDS
        while time.monotonic() < deadline:
            try:
                call.cancel()
                return
            except readie.ReadieError:
                time.sleep(0.5)


def _read(stream: Stream[int]) -> list[int]:
    """Return all that a stream yields, however often Redis is away meanwhile."""
    values, deadline = [], time.monotonic() + LONGEST_SECONDS
    while True:
        try:
            values.append(next(stream))
        except StopIteration:
            return values
        except readie.ClusterUnavailableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def outcome_of(call: Call[Any], seconds: float, read: Callable[[], Any] | None = None) -> str:
    """Wait for a call's end; return ``value: ...`` or the error's class and text, ``hanging`` when it has not ended.

    Args:
        call: to wait for.
        seconds: how long.
        read: gives its value in another way than ``result``.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            value = read() if read is not None else call.result(timeout=max(0.1, deadline - time.monotonic()))
            return f"value: {describe(value)}"
        except readie.CallTimeoutError as error:
            return f"{type(error).__name__}: {error}"
        except (TimeoutError, readie.ClusterUnavailableError) as error:
            # Redis may be away at the moment at which the value is fetched.
            if time.monotonic() > deadline:
                return f"hanging: {error}"
            time.sleep(0.2)
        except Exception as error:
            return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    url, journal, markers, name, seed = sys.argv[1:]
    readie.configure(redis_url=url, client=name.partition("-")[0])
    Load(Path(journal), Path(markers), name, int(seed)).run()
