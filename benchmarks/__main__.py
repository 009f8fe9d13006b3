"""``make bench``: measure, and write ``results/``; ``make bench-check``: a short run, held against ``baseline.json``.

Needs root, a generation in ``READIE_DATA`` (``make generation``) and a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from . import baseline, calls, cost, decisions, document, placing, reality, scale, simulation, start
from .results import RESULTS, Ratio, Section, write

Run = Callable[[], Iterator[Section]]
_START = ("none", "numpy", "pandas", "scikit-learn", "matplotlib")
"""``start-torch`` needs a generation with torch (``make generation EXTRAS=torch``) and is measured when asked for."""


def _one(measure: Callable[[], Section]) -> Iterator[Section]:
    yield measure()


FULL: Mapping[str, Run] = {
    **{f"start-{name}": partial(start.run, [name], rounds=30) for name in (*_START, "torch")},
    "calls": partial(_one, partial(calls.run, calls.FULL)),
    "router": partial(_one, partial(placing.run, placing.FULL)),
    "workers": partial(_one, partial(scale.run, scale.FULL)),
    "cost": partial(_one, partial(cost.run, cost.FULL)),
    "week": partial(_one, partial(decisions.run, decisions.FULL, decisions.Setting())),
    "simulation": partial(_one, partial(simulation.run, simulation.Amounts())),
    "reality": partial(_one, partial(reality.run, reality.Amounts())),
}
SHORT: Mapping[str, Run] = {
    "start": partial(start.run, ["none", "pandas"], rounds=8),
    "calls": partial(
        _one, partial(calls.run, calls.Amounts({0: 200, 10_000_000: 4}, 2, 50, 1), ("celery", "redis lists"))
    ),
    "cost": partial(_one, partial(cost.run, cost.Amounts(rest_seconds=1, calls=100, ready_calls=2))),
    "week": partial(_one, partial(decisions.run, decisions.SHORT, decisions.Setting())),
    "choices": partial(_one, partial(simulation.choices, 5000)),
}


def names(asked: str) -> list[str]:
    """Return the sections that were asked for; ``start`` is all that need nothing but the default flavor."""
    found = []
    for name in asked.split() or ["start", *(name for name in FULL if not name.startswith("start-"))]:
        found += [f"start-{one}" for one in _START] if name == "start" else [name]
    unknown = [name for name in found if name not in FULL]
    if unknown:
        raise SystemExit(f"no section {', '.join(unknown)}; there are start, {', '.join(FULL)}")
    return found


def _measure(runs: Mapping[str, Run]) -> Iterator[Section]:
    for name, run in runs.items():
        began = time.monotonic()
        print(f"{name} ...", file=sys.stderr, flush=True)
        yield from run()
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _bench(sections: list[str], folder: Path) -> bool:
    holds = True
    for section in _measure({name: FULL[name] for name in sections}):
        write(section, folder)
        for check in section.checks:
            print(
                f"{check.what}: {check.value:.3g}, must be {check.sense} {check.limit:g}"
                f"{'' if check.holds else ': DOES NOT HOLD'}"
            )
            holds &= check.holds
    _show(folder)
    return holds


def _show(folder: Path) -> None:
    from . import plots  # what it draws with comes with the other packages of benchmarks only

    plots.draw(folder)
    if folder == RESULTS:
        document.fill(folder)


def _check(*, keep: bool) -> bool:
    measured: dict[str, Ratio] = {}
    for section in _measure(SHORT):
        measured |= section.ratios
    for name, ratio in measured.items():
        print(f"{name}: {ratio.value:.3g}")
    if keep:
        baseline.keep(measured)
        return True
    found = baseline.worse(measured, baseline.load())
    for line in found:
        print(f"WORSE  {line}")
    return not found


def main() -> None:
    """Do what the command line says; the exit status is 1 when something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", default="", help=f"of start, {', '.join(FULL)} (default: all but start-torch)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder to write to")
    parser.add_argument("--check", action="store_true", help="hold a short run against the baseline")
    parser.add_argument("--keep", action="store_true", help="make a short run the baseline")
    parser.add_argument(
        "--draw", action="store_true", help="only draw, and fill docs/performance.md, from the results that are there"
    )
    arguments = parser.parse_args()
    # Asked to stop, it stops the clusters that it runs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if arguments.draw:
        _show(arguments.results)
        return
    if arguments.check or arguments.keep:
        holds = _check(keep=arguments.keep)
    else:
        holds = _bench(names(arguments.sections), arguments.results)
    raise SystemExit(0 if holds else 1)


if __name__ == "__main__":
    main()
