"""What scoring one call costs: ``python benchmarks/scoring.py [--calls N]``.

A catalogue of 5,000 modules in packages, as an interpreter with many libraries has them, and 16 checkpoints of up to
2,500 modules. Every call has 30 other hints, each a name below a module, so nothing is remembered from call to call.
"""

import argparse
import random
import statistics
import time

from readie.protocol.call import ImportHints
from readie.protocol.catalogue import Catalogue, Checkpoint, Cost, Module
from router.catalogue import CompiledCatalogue

PACKAGES = 250
MODULES_PER_PACKAGE = 20
CHECKPOINTS = 16
HINTS = 30


def make_catalogue(chance: random.Random) -> Catalogue:
    """Return packages that depend on a few others; half of a package comes with it, its other modules one by one."""
    modules: dict[str, Module] = {}
    needs: dict[str, set[str]] = {}
    for number in range(PACKAGES):
        package = f"package{number}"
        loaded = {package, *(f"{package}.module{part}" for part in range(MODULES_PER_PACKAGE // 2))}
        for other in chance.sample(range(number), min(number, chance.randrange(4))):
            loaded |= needs[f"package{other}"]
        for part in range(MODULES_PER_PACKAGE - 1):
            name = f"{package}.module{part}"
            needs[name] = loaded | {name}
        needs[package] = loaded
    for name, needed in needs.items():
        modules[name] = Module(
            import_seconds=chance.expovariate(1 / 0.005), megabytes=chance.expovariate(1.0), dependencies=tuple(needed)
        )
    checkpoints = []
    for number in range(CHECKPOINTS):
        holds: set[str] = set()
        while number and len(holds) < number * 150:
            holds |= needs[chance.choice(list(needs))]
        size = 12 + sum(modules[name].megabytes for name in holds)
        checkpoints.append(
            Checkpoint(id=f"checkpoint_{number}", imported=(), holds=tuple(holds), megabytes=size, restore_seconds=0.1)
        )
    return Catalogue(
        generation="benchmark",
        flavor="default",
        python="3.11",
        filesystem_digest="",
        cost=Cost(restore_base_seconds=0.08, restore_seconds_per_megabyte=0.0008, cold_base_seconds=0.35),
        modules=modules,
        checkpoints=tuple(checkpoints),
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    catalogue = make_catalogue(chance)
    started = time.perf_counter()
    compiled = CompiledCatalogue(catalogue)
    compile_seconds = time.perf_counter() - started
    names = list(catalogue.modules)
    calls = [
        ImportHints(imports=tuple(f"{name}.Thing" for name in chance.sample(names, HINTS)))
        for _ in range(arguments.calls)
    ]
    seconds = []
    cpu_before = time.process_time()
    for hints in calls:
        started = time.perf_counter()
        compiled.scores(hints)
        seconds.append(time.perf_counter() - started)
    cpu_seconds = (time.process_time() - cpu_before) / len(calls)
    started = time.perf_counter()
    for _ in range(arguments.calls):
        compiled.scores(calls[-1])
    again_seconds = (time.perf_counter() - started) / arguments.calls
    modules = [hint.removesuffix(".Thing") for hint in calls[0].imports]
    needed = {need for name in modules for need in catalogue.modules[name].dependencies}
    print(f"{len(names)} modules, {len(catalogue.checkpoints)} checkpoints, {HINTS} hints, {len(calls)} calls")
    print(f"modules the first call needs      {len(needed):9d}")
    print(f"compiling the catalogue           {compile_seconds * 1e3:9.1f} ms, once per generation")
    print(f"scoring a call, mean              {statistics.fmean(seconds) * 1e6:9.1f} µs")
    print(f"scoring a call, mean CPU time     {cpu_seconds * 1e6:9.1f} µs, whatever else this machine does")
    print(f"scoring a call, median            {statistics.median(seconds) * 1e6:9.1f} µs")
    print(f"scoring a call, 99th percentile   {statistics.quantiles(seconds, n=100)[-1] * 1e6:9.1f} µs")
    print(f"scoring the same hints again      {again_seconds * 1e6:9.1f} µs")


if __name__ == "__main__":
    main()
