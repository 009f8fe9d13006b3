"""The cost model: what holds for every catalogue, and the worked example."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from router_cluster import catalogue

from readie.protocol.call import ImportHints
from readie.protocol.catalogue import Catalogue, Checkpoint, Cost, Module
from router.catalogue import CompiledCatalogue
from router.scoring import id_order

NAMES = [
    *(f"pkg{number}" for number in range(12)),
    *(f"pkg{number}.sub{part}" for number in range(8) for part in range(3)),
    *(f"pkg{number}.sub0.deep" for number in range(4)),
]
seconds = st.floats(0, 20, allow_nan=False)
megabytes = st.floats(0, 2000, allow_nan=False)


@st.composite
def catalogues(draw: st.DrawFn) -> Catalogue:
    """Any catalogue: with dependencies in circles, stated in part, or on names it does not have."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=30))
    some = st.lists(st.sampled_from([*names, "elsewhere"]), unique=True, max_size=8)
    modules = {
        name: Module(
            import_seconds=draw(seconds),
            megabytes=draw(megabytes),
            dependencies=tuple(draw(some)),
        )
        for name in names
    }
    checkpoints = tuple(
        Checkpoint(
            id=f"checkpoint_{number}",
            imported=(),
            holds=tuple(draw(st.lists(st.sampled_from([*names, "elsewhere"]), unique=True))),
            megabytes=draw(st.one_of(megabytes, st.sampled_from([10.0, 20.0]))),
            restore_seconds=0,
        )
        for number in range(draw(st.integers(0, 12)))
    )
    cost = Cost(
        restore_base_seconds=draw(seconds),
        restore_seconds_per_megabyte=draw(st.floats(0, 0.1)),
        cold_base_seconds=draw(seconds),
    )
    return Catalogue(
        generation="g",
        flavor="f",
        python="3.11",
        filesystem_digest="",
        cost=cost,
        modules=modules,
        checkpoints=checkpoints,
    )


hints = st.lists(
    st.one_of(
        st.sampled_from(NAMES), st.sampled_from(NAMES).map(lambda name: name + ".Thing"), st.just("unknown.name")
    ),
    max_size=15,
).map(lambda names: ImportHints(imports=tuple(names)))


def naive_resolve(catalogue: Catalogue, hint: str) -> str | None:
    parts = hint.split(".")
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in catalogue.modules:
            return ".".join(parts[:length])
    return None


def naive_needed(catalogue: Catalogue, names: Sequence[str]) -> set[str]:
    needed: set[str] = set()
    open_names = list(names)
    while open_names:
        name = open_names.pop()
        if name in catalogue.modules and name not in needed:
            needed.add(name)
            open_names.extend(catalogue.modules[name].dependencies)
    return needed


def naive_costs(catalogue: Catalogue, wanted: ImportHints) -> dict[str | None, float]:
    """The formula as it is written down."""
    resolved = [naive_resolve(catalogue, hint) for hint in wanted.imports]
    needed = naive_needed(catalogue, [name for name in resolved if name is not None])
    cost, modules = catalogue.cost, catalogue.modules
    costs: dict[str | None, float] = {
        None: cost.cold_base_seconds + sum(modules[name].import_seconds for name in needed)
    }
    for checkpoint in catalogue.checkpoints:
        costs[checkpoint.id] = (
            cost.restore_base_seconds
            + cost.restore_seconds_per_megabyte * checkpoint.megabytes
            + sum(modules[name].import_seconds for name in needed if name not in checkpoint.holds)
        )
    return costs


@given(catalogues(), hints)
def test_scores_are_those_of_the_formula(some: Catalogue, wanted: ImportHints) -> None:
    scores = CompiledCatalogue(some).scores(wanted)
    found = {score.checkpoint_id: score.seconds for score in (*scores.checkpoints, scores.cold)}
    assert found == pytest.approx(naive_costs(some, wanted), abs=1e-6)


@given(catalogues(), hints)
def test_the_best_is_the_lowest(some: Catalogue, wanted: ImportHints) -> None:
    scores = CompiledCatalogue(some).scores(wanted)
    assert scores.best.seconds <= min(score.seconds for score in (*scores.checkpoints, scores.cold)) + 1e-8


@given(catalogues(), hints)
def test_one_more_checkpoint_never_makes_a_start_slower(some: Catalogue, wanted: ImportHints) -> None:
    if not some.checkpoints:
        return
    fewer = some.model_copy(update={"checkpoints": some.checkpoints[1:]})
    assert CompiledCatalogue(some).scores(wanted).best.seconds <= CompiledCatalogue(fewer).scores(wanted).best.seconds


@given(catalogues(), hints, megabytes, megabytes)
def test_of_two_checkpoints_that_hold_all_that_is_needed_the_smaller_wins(
    some: Catalogue, wanted: ImportHints, one: float, other: float
) -> None:
    needed = tuple(some.modules)
    small, large = sorted((one, other))
    complete = (
        Checkpoint(id="large", imported=(), holds=needed, megabytes=large, restore_seconds=0),
        Checkpoint(id="small", imported=(), holds=needed, megabytes=small, restore_seconds=0),
    )
    scores = CompiledCatalogue(some.model_copy(update={"checkpoints": complete})).scores(wanted)
    if small < large:
        assert scores.best.checkpoint_id != "large"


@given(catalogues(), hints, st.randoms(use_true_random=False))
def test_the_order_of_hints_modules_and_checkpoints_does_not_matter(
    some: Catalogue, wanted: ImportHints, chance: random.Random
) -> None:
    imports, modules, checkpoints = list(wanted.imports) * 2, list(some.modules.items()), list(some.checkpoints)
    for each in (imports, modules, checkpoints):
        chance.shuffle(each)
    shuffled = some.model_copy(update={"modules": dict(modules), "checkpoints": tuple(checkpoints)})
    before = CompiledCatalogue(some).scores(wanted)
    assert CompiledCatalogue(shuffled).scores(ImportHints(imports=tuple(imports))) == before


@given(catalogues(), hints)
def test_every_hint_is_either_resolved_or_unknown(some: Catalogue, wanted: ImportHints) -> None:
    resolution = CompiledCatalogue(some).resolve(wanted)
    resolved = {hint: naive_resolve(some, hint) for hint in wanted.imports}
    assert set(resolution.modules) == {name for name in resolved.values() if name is not None}
    assert set(resolution.unknown) == {hint for hint, name in resolved.items() if name is None}


@pytest.mark.parametrize(
    ("hint", "module"),
    [
        ("numpy", "numpy"),
        ("numpy.linalg.norm", "numpy.linalg"),
        ("numpy.random.rand", "numpy"),
        ("numpyx", None),
        ("numpyx.linalg", None),
        (".numpy", None),
        ("numpy.", "numpy"),
        ("", None),
        ("...", None),
    ],
)
def test_a_name_resolves_to_the_nearest_module_above_it(hint: str, module: str | None) -> None:
    resolution = CompiledCatalogue(catalogue()).resolve(ImportHints(imports=(hint,)))
    assert resolution.modules == ((module,) if module else ())
    assert resolution.unknown == (() if module else (hint,))


def test_the_worked_example() -> None:
    scores = CompiledCatalogue(catalogue(("numpy",), ("numpy", "pandas"))).scores(ImportHints(imports=("pandas",)))
    parts = {
        score.checkpoint_id: (score.base_seconds, score.size_seconds, score.import_seconds)
        for score in (scores.cold, *scores.checkpoints)
    }
    assert parts == {
        None: (0.3, 0.0, 0.7),
        "checkpoint_0": (0.1, 0.015, 0.7),
        "checkpoint_1": (0.1, 0.035, 0.5),
        "checkpoint_2": (0.1, 0.075, 0.0),
    }
    assert scores.best.checkpoint_id == "checkpoint_2"
    assert scores.best.seconds == pytest.approx(0.175)


def tied(*checkpoints: Checkpoint, per_megabyte: float = 0.0, cold: float = 10.0) -> CompiledCatalogue:
    cost = Cost(restore_base_seconds=1, restore_seconds_per_megabyte=per_megabyte, cold_base_seconds=cold)
    return CompiledCatalogue(catalogue().model_copy(update={"cost": cost, "checkpoints": checkpoints}))


def image(checkpoint_id: str, megabytes: float) -> Checkpoint:
    return Checkpoint(id=checkpoint_id, imported=(), holds=(), megabytes=megabytes, restore_seconds=0)


def test_of_equal_starts_the_smaller_checkpoint_wins() -> None:
    scores = tied(image("checkpoint_1", 20), image("checkpoint_2", 10)).scores(ImportHints())
    assert scores.best.checkpoint_id == "checkpoint_2"


def test_of_equal_starts_of_equal_size_the_lower_number_wins() -> None:
    scores = tied(image("checkpoint_10", 10), image("checkpoint_9", 10)).scores(ImportHints())
    assert scores.best.checkpoint_id == "checkpoint_9"


def test_of_equal_starts_a_cold_one_wins_over_a_restore() -> None:
    scores = tied(image("checkpoint_0", 10), cold=1.0).scores(ImportHints())
    assert scores.best.checkpoint_id is None


def test_sums_in_another_order_still_tie() -> None:
    # 0.1 + 0.2 + 0.3 is not 0.3 + 0.2 + 0.1 in floating point.
    modules = {name: Module(import_seconds=part, megabytes=0) for name, part in (("a", 0.1), ("b", 0.2), ("c", 0.3))}
    modules["d"] = Module(import_seconds=0.6, megabytes=0)
    holding = [("checkpoint_2", ("d",)), ("checkpoint_1", ("a", "b", "c"))]
    checkpoints = tuple(
        Checkpoint(id=name, imported=(), holds=held, megabytes=10, restore_seconds=0) for name, held in holding
    )
    some = catalogue().model_copy(update={"modules": modules, "checkpoints": checkpoints})
    scores = CompiledCatalogue(some).scores(ImportHints(imports=("c", "d", "a", "b")))
    assert scores.best.checkpoint_id == "checkpoint_1"


@given(st.lists(st.from_regex(r"[a-z]{0,3}_?[0-9]{0,3}[a-z]?", fullmatch=True)))
@settings(max_examples=50)
def test_numbers_in_ids_count_as_numbers_in_any_set_of_ids(ids: list[str]) -> None:
    numbered = [f"checkpoint_{number}" for number in range(16)]
    ordered = sorted([*ids, *reversed(numbered)], key=id_order)
    assert [name for name in ordered if name in numbered] == numbered


def test_an_empty_catalogue_offers_a_cold_start() -> None:
    some = catalogue().model_copy(update={"modules": {}, "checkpoints": ()})
    scores = CompiledCatalogue(some).scores(ImportHints(imports=("numpy",)))
    assert scores.best is scores.cold
    assert scores.cold.seconds == pytest.approx(0.3)
