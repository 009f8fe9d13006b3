"""What a call pays for its sandbox: ``python benchmarks/starts.py [--rounds N] [--bursts N]`` (root).

Everything is measured in one run, in turns, on the current generation of ``READIE_DATA``: calls that meet a ready
sandbox, calls that meet a created one, cold ones, and, to compare with, runsc's own ``restore`` followed by a
connection. Before each of them the worker's pools are full, bursts apart. There are no sessions yet: *warm* is the
time of repeated calls over one connection to one executor, to which a session could only add.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import socket
import statistics
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from one_worker import OneWorker, Ran

from readie.pickling import dump_call
from workers.executor import control
from workers.sandbox.connection import ExecutorConnection
from workers.sandbox.host import SandboxHost
from workers.sandbox.runsc import RestoreOptions, RunscOptions, find_runsc
from workers.sandbox.sandbox import Sandbox

T = TypeVar("T")

BURST = 25
BARE_AT_ONCE = 2
PANDAS = "checkpoint_1"
CHECKPOINTS = ("checkpoint_0", PANDAS)
"""The default flavor's: one that has imported nothing, and the one with pandas."""
ROWS = [{"a": 1.0, "b": 4.0}, {"a": 3.0, "b": 8.0}]


def trivial() -> int:
    """Do nothing."""
    return 1


def mean(rows: list[dict[str, float]]) -> dict[str, float]:
    """Need pandas."""
    import pandas as pd

    return pd.DataFrame(rows).mean().to_dict()


def bare_restore(host: SandboxHost, sandbox: Sandbox, image: Path) -> float:
    """Return the seconds of ``runsc restore`` and a connection, in no way of this product's; discards the sandbox."""
    folder = sandbox.folder
    options = RunscOptions(folder / "state", folder / "runsc.log", folder / "panic.log")
    command = [str(find_runsc()), *options.args(), "restore", *RestoreOptions(folder, image).args(), sandbox.id]
    (sandbox.control_dir / control.GO).write_text("restored")
    began = time.perf_counter()
    # Without a timeout: with one, Popen looks at the process only every now and then.
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        if process.wait() != 0:
            raise RuntimeError(f"runsc restore failed: {options.log.read_text()}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        while connection.connect_ex(str(sandbox.control_dir / control.SOCKET)) != 0:
            time.sleep(0.0002)
        connection.recv(1)
    seconds = time.perf_counter() - began
    host.discard(sandbox)
    return seconds


@contextlib.contextmanager
def warm_executor(host: SandboxHost, image: Path) -> Iterator[ExecutorConnection]:
    """Give a connection to an executor that stays."""
    sandbox = host.take()
    sandbox.restore(image, timeout=60)
    yield sandbox.wait_ready(timeout=60)
    host.discard(sandbox)


class Times:
    """Seconds by what was measured."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, list[float]] = defaultdict(list)
        self.all_hold = True

    def add(self, name: str, seconds: float) -> None:
        """Note one."""
        self._seconds[name].append(seconds)

    def median(self, name: str) -> float:
        """Return the median of one kind."""
        return statistics.median(self._seconds[name])

    def show(self) -> None:
        """Print all."""
        print(f"{'milliseconds':<46}{'median':>9}{'quartiles':>20}{'n':>5}")
        for name, seconds in self._seconds.items():
            low, _, high = statistics.quantiles(seconds, n=4) if len(seconds) > 1 else seconds * 3
            print(f"{name:<46}{1e3 * self.median(name):9.1f}{1e3 * low:11.1f} -{1e3 * high:7.1f}{len(seconds):5d}")

    def compare(self, name: str, other: str, most: float | None = None) -> None:
        """Print a ratio, and whether it is at most what it must be."""
        ratio = self.median(name) / self.median(other)
        verdict = ""
        if most is not None:
            holds = ratio <= most
            self.all_hold &= holds
            verdict = f"   at most {most:g}: {'holds' if holds else 'DOES NOT HOLD'}"
        print(f"{name + ' / ' + other:<70}{ratio:8.2f}{verdict}")


def in_hand(ran: Ran) -> float:
    """Return the seconds from the claim of a call until the worker had its result."""
    return sum(seconds for name, seconds in ran.report.phases.items() if name in IN_WORKER)


IN_WORKER = {"sandbox", "start", "connect", "load", "execute", "dump"}


def expect(ran: Ran, pool: str, start: str) -> Ran:
    """Make sure that what was measured is what was meant."""
    found = (ran.report.pool, ran.report.start)
    if found != (pool, start):
        raise RuntimeError(f"the call met {found} instead of {(pool, start)}: {ran.report.fallback}")
    return ran


@dataclass(frozen=True)
class Benchmark:
    """What is measured: a worker as it comes, and a plain one that keeps created sandboxes alone."""

    worker: OneWorker
    plain: OneWorker
    host: SandboxHost
    """For the bare restores and the warm executors."""
    times: Times

    def settle(self) -> None:
        """Return when nothing goes on."""
        self.worker.wait_full()
        self.plain.wait_full()

    def measure_single(self, rounds: int) -> None:
        """Measure one call at a time, in turns."""
        payload = dump_call(trivial, (), {})
        with contextlib.ExitStack() as stack:
            warm = {
                name: stack.enter_context(warm_executor(self.host, self.worker.image(name))) for name in CHECKPOINTS
            }
            for _ in range(rounds):
                for name in CHECKPOINTS:
                    self.settle()
                    for _ in range(2):  # the first one after a pause is slower
                        began = time.perf_counter()
                        warm[name].call("c", "trivial", [payload])
                        seconds = time.perf_counter() - began
                    self.times.add(f"{name}: warm call", seconds)
                    self.settle()
                    ran = expect(self.worker.run(trivial, (), name), "ready", "restored")
                    self.times.add(f"{name}: fresh call, ready", in_hand(ran))
                    sandbox = self.host.take()
                    self.settle()
                    self.times.add(f"{name}: bare restore", bare_restore(self.host, sandbox, self.worker.image(name)))
                    self.settle()
                    ran = expect(self.plain.run(trivial, (), name), "created", "restored")
                    self.times.add(f"{name}: fresh call, created", ran.seconds)
                self._measure_pandas()

    def _measure_pandas(self) -> None:
        self.settle()
        ran = expect(self.worker.run(mean, (ROWS,), PANDAS), "ready", "restored")
        self.times.add("pandas: ready", ran.seconds)
        self.settle()
        ran = expect(self.plain.run(mean, (ROWS,), PANDAS), "created", "restored")
        self.times.add("pandas: created", ran.seconds)
        self.settle()
        ran = expect(self.plain.run(mean, (ROWS,), None), "created", "cold")
        self.times.add("pandas: cold", ran.seconds)

    def measure_bursts(self, bursts: int) -> Counter[str]:
        """Measure 25 calls at once for one checkpoint, in turns with 25 bare restores; return what the calls met."""
        met: Counter[str] = Counter()
        image = self.worker.image(PANDAS)
        for _ in range(bursts):
            for name, worker in (("calls", self.worker), ("calls, created only", self.plain)):
                self.settle()
                call = functools.partial(worker.run, trivial, (), PANDAS)
                done = self._at_once(name, [call] * BURST, worker.settings.slots)
                met.update(f"{name}: {ran.report.pool}" for ran in done)
            sandboxes = [self.host.take() for _ in range(BURST)]
            self.settle()
            restores = [functools.partial(bare_restore, self.host, sandbox, image) for sandbox in sandboxes]
            self._at_once("bare restores", restores, BARE_AT_ONCE)
            create = [lambda: bare_restore(self.host, self.host.take(), image)] * BURST
            self._at_once("bare creates and restores", create, BARE_AT_ONCE)
        return met

    def _at_once(self, name: str, work: Sequence[Callable[[], T]], threads: int) -> list[T]:
        with ThreadPoolExecutor(threads) as pool:
            began = time.perf_counter()
            done = list(pool.map(lambda one: one(), work))
            self.times.add(f"{BURST} at once: {name}", time.perf_counter() - began)
        return done


def main() -> None:
    """Measure and print; the exit status is 1 when a ratio does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25, help="of single calls (default: 25)")
    parser.add_argument("--bursts", type=int, default=3, help="of 25 calls (default: 3)")
    arguments = parser.parse_args()
    times = Times()
    with OneWorker() as worker, OneWorker(ready_memory_bytes=0) as plain:
        served = worker.serving.served
        with SandboxHost(worker.run_dir / "bare", find_runsc(), served.filesystem, served.shape) as host:
            benchmark = Benchmark(worker, plain, host, times)
            benchmark.measure_single(arguments.rounds)
            met = benchmark.measure_bursts(arguments.bursts)
    times.show()
    print()
    for checkpoint_id in CHECKPOINTS:
        times.compare(f"{checkpoint_id}: fresh call, ready", f"{checkpoint_id}: warm call", 3.0)
        times.compare(f"{checkpoint_id}: fresh call, created", f"{checkpoint_id}: bare restore", 1.25)
    times.compare("pandas: cold", "pandas: ready")
    times.compare("pandas: cold", "pandas: created")
    times.compare(f"{BURST} at once: calls", f"{BURST} at once: bare restores", 1.5)
    times.compare(f"{BURST} at once: calls, created only", f"{BURST} at once: bare restores")
    times.compare(f"{BURST} at once: calls, created only", f"{BURST} at once: bare creates and restores", 1.5)
    print("the calls of all bursts met: " + ", ".join(f"{name} {count}" for name, count in sorted(met.items())))
    raise SystemExit(0 if times.all_hold else 1)


if __name__ == "__main__":
    main()
