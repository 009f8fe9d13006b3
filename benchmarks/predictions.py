"""Predicted and measured starts: ``python benchmarks/predictions.py [--sets N] [--rounds N]`` (root).

Restores every checkpoint of the current generation. Then, for the most frequent calls of the flavor's corpus, restores
the best checkpoint and starts cold, and imports what the call names. Compares the medians of the time until that is
done with the predictions. Reads READIE_DATA and READIE_FLAVOR.
"""

import argparse
import importlib
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import cloudpickle
from rich.console import Console
from rich.table import Table

from readie.generations.disk import current_generation, load_generation
from readie.settings import FlavorSettings
from workers.pipeline.capture import run
from workers.pipeline.corpus import read_corpus
from workers.pipeline.cost import restore_seconds
from workers.pipeline.demand import Demand
from workers.pipeline.filesystem import flavor_folder
from workers.sandbox.filesystem import read_filesystem
from workers.sandbox.host import SandboxHost
from workers.sandbox.runsc import find_runsc

SECONDS = 120.0


def import_all(names: Sequence[str]) -> float:
    """Import in the sandbox; return the seconds."""
    began = time.perf_counter()
    for name in names:
        importlib.import_module(name)
    return time.perf_counter() - began


def start(host: SandboxHost, image: Path | None, names: Sequence[str]) -> float:
    """Start a sandbox, import, and return the seconds from a created sandbox to there."""
    sandbox = host.take(to_restore=image is not None)
    try:
        if image is None:
            sandbox.start(timeout=SECONDS)
        else:
            sandbox.restore(image, timeout=SECONDS)
        connection = sandbox.wait_ready(timeout=SECONDS)
        started = sum(seconds for phase, seconds in sandbox.phases.items() if phase != "create_seconds")
        return started + (run(connection, import_all, list(names), timeout=SECONDS) if names else 0.0)
    finally:
        host.discard(sandbox)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    # The sandboxes have no module of this name.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    settings = FlavorSettings()
    folder = current_generation(settings.data.resolve(), settings.flavor)
    assert folder is not None, "no generation; run `make generation`"
    generation = load_generation(folder)
    source = flavor_folder(settings.data.resolve(), settings.flavor) / generation.manifest.filesystem_digest
    corpus = read_corpus(Path(__file__).parents[1] / "flavors" / settings.flavor / "corpus.jsonl")
    catalogue = generation.catalogue
    images = [frozenset(checkpoint.holds) for checkpoint in catalogue.checkpoints]
    demand = Demand(catalogue.modules, corpus, images)
    ways: dict[str | None, list[float]] = {None: demand.cold_seconds(catalogue.cost)}
    trials: list[tuple[str, str | None, Sequence[str], float]] = []
    for checkpoint, holds in zip(catalogue.checkpoints, images, strict=True):
        ways[checkpoint.id] = demand.start_seconds(catalogue.cost, demand.set_of(holds), checkpoint.megabytes)
        trials.append(
            (f"restore {checkpoint.id}", checkpoint.id, (), restore_seconds(catalogue.cost, checkpoint.megabytes))
        )
    calls = sorted(enumerate(demand.calls), key=lambda item: -item[1].share)
    for position, call in calls[: arguments.sets]:
        title = ", ".join(call.names) or "nothing"
        best = min((seconds[position], way) for way, seconds in ways.items() if way is not None)[1]
        trials += [(title, way, call.names, ways[way][position]) for way in (best, None)]
    with SandboxHost(
        Path("/run/readie/benchmark-predictions"), find_runsc(settings.runsc), read_filesystem(source)
    ) as host:
        measured: list[list[float]] = [[] for _ in trials]
        for _ in range(arguments.rounds):
            for (_, way, names, _), seconds in zip(trials, measured, strict=True):
                seconds.append(start(host, generation.checkpoints[way] if way else None, names))
    table = Table("imports", "start", "predicted ms", "median ms", "off")
    off = []
    for (title, way, _, predicted), seconds in zip(trials, measured, strict=True):
        median = statistics.median(seconds)
        off.append(abs(predicted - median) / median)
        table.add_row(
            title, way or "cold", f"{predicted * 1e3:.0f}", f"{median * 1e3:.0f}", f"{predicted / median - 1:+.0%}"
        )
    console = Console(highlight=False, width=150)
    console.print(table)
    for title, part in (("checkpoints", off[: len(images)]), ("calls", off[len(images) :])):
        console.print(f"{title}: off by {statistics.median(part):.0%} in the median, {max(part):.0%} at most")


if __name__ == "__main__":
    main()
