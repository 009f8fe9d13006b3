"""Catalogues of made-up packages, of any size."""

import random

from readie.protocol.catalogue import Catalogue, Checkpoint, Cost, Module

_MODULES_PER_PACKAGE = 20


def make_catalogue(chance: random.Random, *, modules: int, checkpoints: int) -> Catalogue:
    """Return packages that depend on a few others; half of a package comes with it, its other modules one by one."""
    needs: dict[str, set[str]] = {}
    for number in range(modules // _MODULES_PER_PACKAGE):
        package = f"package{number}"
        loaded = {package, *(f"{package}.module{part}" for part in range(_MODULES_PER_PACKAGE // 2))}
        # As with real ones, most depend on the same few, and no import loads half of all there is.
        for other in chance.sample(range(min(number, 250)), min(number, chance.randrange(4))):
            loaded |= needs[f"package{other}"]
        for part in range(_MODULES_PER_PACKAGE - 1):
            name = f"{package}.module{part}"
            needs[name] = loaded | {name}
        needs[package] = loaded
    known = {
        name: Module(
            import_seconds=chance.expovariate(1 / 0.005), megabytes=chance.expovariate(1.0), dependencies=tuple(needed)
        )
        for name, needed in needs.items()
    }
    images = []
    for number in range(checkpoints):
        holds: set[str] = set()
        while number and len(holds) < min(number * 150, modules // 2):
            holds |= needs[chance.choice(list(needs))]
        megabytes = 12 + sum(known[name].megabytes for name in holds)
        images.append(
            Checkpoint(
                id=f"checkpoint_{number}",
                imported=(),
                holds=tuple(holds),
                megabytes=megabytes,
                restore_seconds=0.08 + 0.0008 * megabytes,
            )
        )
    return Catalogue(
        generation="benchmark",
        flavor="default",
        python="3.11",
        filesystem_digest="",
        cost=Cost(restore_base_seconds=0.08, restore_seconds_per_megabyte=0.0008, cold_base_seconds=0.35),
        modules=known,
        checkpoints=tuple(images),
    )
