"""Whether a worker is as clean after thousands of calls as after a hundred: ``python -m benchmarks.soak`` (root).

Runs ``--calls`` calls, as many at a time as a worker has slots: trivial ones and ones with pandas, restored and cold,
some that raise and some that end their sandbox. Then counts what there is of the worker once its pools are emptied, and
compares that with a worker that ran ``--first`` calls only. The exit status is 1 when there is more of anything; of the
worker's memory, more than 5 % more than it had itself after its first calls.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

from workers.sandbox.processes import processes_under

from .one_worker import CallFailedError, OneWorker

CHUNK = 50
MORE_MEMORY = 1.05
ONE_ARENA = "MALLOC_ARENA_MAX"
"""Of the C library's allocator."""
MORE_OPEN_FILES = 8
"""As many calls as ran at once at some time, so many connections and watches are kept."""
READY_BYTES = 400 << 20
REST_SECONDS = 120.0


def trivial() -> int:
    """Do nothing."""
    return 1


def mean() -> float:
    """Need pandas."""
    import pandas as pd

    return float(pd.Series([1.0, 2.0]).mean())


def fail() -> None:
    """Raise."""
    raise ValueError("on purpose")


def leave() -> None:
    """End the sandbox."""
    os._exit(1)


KINDS: list[tuple[Callable[[], object], str | None]] = [
    *[(trivial, "checkpoint_0")] * 4,
    *[(mean, "checkpoint_1")] * 4,
    (fail, "checkpoint_0"),
    (leave, "checkpoint_0"),
    (trivial, None),
]
"""In turn; the last is cold."""


def count(worker: OneWorker) -> dict[str, int]:
    """Return what there is of a worker that runs on but keeps no sandbox."""
    worker.supply.close()
    deadline = time.monotonic() + REST_SECONDS
    while any(worker.run_dir.glob("*/s*/")) and time.monotonic() < deadline:
        time.sleep(0.05)
    return {
        "processes": len(processes_under(worker.run_dir)),
        "threads": threading.active_count(),
        "open files": len(list(Path("/proc/self/fd").iterdir())),
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
        "files": sum(1 for _ in worker.run_dir.rglob("*")),
        "control groups": sum(1 for _ in Path("/sys/fs/cgroup").glob(f"**/readie/{quote(str(worker.run_dir))}*/*/")),
    }


def own_kilobytes() -> int:
    """Return the anonymous memory of this process; what it shares with other programs changes as they come and go."""
    gc.collect()
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return sum(int(size) for size in re.findall(r"^Anonymous:\s+(\d+) kB", rollup, re.MULTILINE))


def soak(calls: int, first: int) -> tuple[dict[str, int], int, int]:
    """Run calls in a worker of its own; return what there is then, and its memory after the first calls and then."""
    with OneWorker(ready_memory_bytes=READY_BYTES) as worker, ThreadPoolExecutor(worker.settings.slots) as threads:

        def run(number: int) -> None:
            function, checkpoint_id = KINDS[number % len(KINDS)]
            try:
                worker.run(function, (), checkpoint_id)
            except CallFailedError:
                if function not in {fail, leave}:
                    raise

        def run_all(numbers: range) -> None:
            for begin in range(numbers.start, numbers.stop, CHUNK):
                began = time.perf_counter()
                chunk = range(begin, min(begin + CHUNK, numbers.stop))
                list(threads.map(run, chunk))
                worker.forget_queue()
                rate = len(chunk) / (time.perf_counter() - began)
                print(f"\r{chunk.stop} of {calls} calls, {rate:.1f} a second ", end="", file=sys.stderr, flush=True)

        run_all(range(first))
        memory = own_kilobytes()
        run_all(range(first, calls))
        end = own_kilobytes()
        print(file=sys.stderr)
        return count(worker), memory, end


def main() -> None:
    """Run, print, and tell by the exit status whether anything grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--first", type=int, default=100, help="calls to compare with (default: 100)")
    arguments = parser.parse_args()
    if ONE_ARENA not in os.environ:
        # Else each thread's share of the memory that is allocated but not used depends on chance.
        os.execve(sys.executable, [*sys.orig_argv], {**os.environ, ONE_ARENA: "1"})
    logging.disable(logging.WARNING)  # half of the calls that fail are meant to
    before, _, _ = soak(arguments.first, arguments.first)
    after, first_memory, last_memory = soak(arguments.calls, arguments.first)
    before["kilobytes"], after["kilobytes"] = round(first_memory * MORE_MEMORY), last_memory
    before["open files"] += MORE_OPEN_FILES
    print(f"{'':<18}{arguments.first:>10}{arguments.calls:>10} calls")
    for name, number in after.items():
        print(f"{name:<18}{before[name]:>10}{number:>10}{'' if number <= before[name] else '   MORE'}")
    print(
        f"(kilobytes: at most 5 % more than after {arguments.first} calls; open files: at most {MORE_OPEN_FILES} more)"
    )
    raise SystemExit(0 if all(after[name] <= before[name] for name in after) else 1)


if __name__ == "__main__":
    main()
