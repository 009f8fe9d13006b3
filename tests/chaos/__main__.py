"""``python -m tests.chaos``: run the fault suite for some minutes; its seed is printed, and repeats a run."""

import argparse
import random
import sys
import time
from pathlib import Path

from tests.chaos.suite import Run, summary
from tests.conftest import ROOT, build_test_data

SLICE_SECONDS = 150.0
"""Each cluster lives this long, then everything is looked at and the next begins."""


def main() -> int:
    """Run; the exit status is 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long there are faults (default: 5)")
    parser.add_argument("--logs", type=Path, default=ROOT / ".cache" / "chaos", help="where runs that fail leave logs")
    arguments = parser.parse_args()
    seed = random.randrange(10**6) if arguments.seed is None else arguments.seed
    data = build_test_data()
    left, results = 60.0 * arguments.minutes, []
    while left > 0:
        seconds = min(left, SLICE_SECONDS)
        print(f"seed {seed}, {seconds:.0f} s", flush=True)
        logs = arguments.logs / f"{time.strftime('%H%M%S')}-{seed}"
        results.append(Run(seed, data, seconds, say=lambda text: print(text, flush=True), keep=logs).run())
        print(summary(results[-1]), flush=True)
        left, seed = left - seconds, seed + 1
    calls, faults = sum(len(r.calls) for r in results), sum(r.faults.total() for r in results)
    broken = sum(len(r.findings) for r in results)
    print(f"in all {calls} calls, {faults} faults, {broken} findings")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
