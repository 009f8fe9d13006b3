"""The start that a running router chooses, over the import sets that the default flavor is planned for."""

import json
import random
from collections.abc import Callable

import pytest
from router_cluster import PYTHON, ROOT, Client, Worker, header
from test_scoring import naive_costs

from readie.protocol.call import ImportHints
from readie.protocol.catalogue import Catalogue, Checkpoint, Cost, Module

SETS = [
    tuple(json.loads(line)["imports"])
    for line in (ROOT / "flavors" / "default" / "corpus.jsonl").read_text().splitlines()
    if line.strip()
]
COST = Cost(restore_base_seconds=0.09, restore_seconds_per_megabyte=0.0011, cold_base_seconds=0.31)


def modules(chance: random.Random) -> dict[str, Module]:
    """Return the corpus' packages and first submodules, each with what its package needs."""
    names = {".".join(name.split(".")[:depth]) for imports in SETS for name in imports for depth in (1, 2)}
    packages = sorted({name.split(".")[0] for name in names})
    needs = {package: set(chance.sample(packages, chance.randrange(3))) for package in packages}
    return {
        name: Module(
            import_seconds=chance.expovariate(8.0 if "." not in name else 60.0),
            megabytes=chance.expovariate(0.05),
            dependencies=tuple(needs[name.split(".")[0]] | {name.split(".")[0]} - {name}),
        )
        for name in sorted(names)
    }


def generation(chance: random.Random, number: int, count: int) -> Catalogue:
    """Return a catalogue whose checkpoints hold what some of the sets need."""
    known = modules(random.Random(7))
    checkpoints = [Checkpoint(id="checkpoint_0", imported=(), holds=(), megabytes=11, restore_seconds=0)]
    for index in range(1, count + 1):
        holds: set[str] = set()
        for imports in chance.sample(SETS, chance.randrange(1, 6)):
            waiting = [".".join(name.split(".")[:2]) for name in imports]
            while waiting:
                name = waiting.pop()
                if name in known and name not in holds:
                    holds.add(name)
                    waiting += known[name].dependencies
        size = 11 + sum(known[name].megabytes for name in holds)
        checkpoints.append(
            Checkpoint(
                id=f"checkpoint_{index}", imported=(), holds=tuple(sorted(holds)), megabytes=size, restore_seconds=0
            )
        )
    return Catalogue(
        generation=f"g{number}",
        flavor="default",
        python=PYTHON,
        filesystem_digest="",
        cost=COST,
        modules=known,
        checkpoints=tuple(checkpoints),
    )


@pytest.mark.usefixtures("router")
def test_over_the_default_corpus_every_start_is_within_two_percent_of_the_best(
    client: Client, new_worker: Callable[..., Worker]
) -> None:
    chance = random.Random(3)
    served = [generation(chance, number, count) for number, count in enumerate([15, 15, 8, 0])]
    workers = [
        new_worker(f"worker{number}@test", slots=1000).serve(some).announce() for number, some in enumerate(served)
    ]
    assert len(SETS) > 100
    worst = 1.0
    for number, imports in enumerate(SETS):
        client.submit(header(f"c{number}", imports=imports))
        client.end_of_queue()
        (worker,) = (worker for worker in workers if worker.queued())
        _, placement = worker.receive_header()
        assert placement.predicted_seconds is not None
        hints = ImportHints(imports=imports)
        best = min(min(naive_costs(some, hints).values()) for some in served)
        assert placement.predicted_seconds == pytest.approx(
            naive_costs(served[workers.index(worker)], hints)[placement.checkpoint_id], abs=1e-6
        )
        worst = max(worst, placement.predicted_seconds / best)
    assert worst <= 1.02
