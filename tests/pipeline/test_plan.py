"""Planning: against the exhaustive optimum, against the router's own scoring, and what holds for every plan."""

import itertools
import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readie.protocol.call import ImportHints
from readie.protocol.catalogue import Catalogue, Checkpoint, Cost, Module
from router.catalogue import CompiledCatalogue
from workers.pipeline.corpus import Corpus, ImportSet, corpus
from workers.pipeline.demand import Demand, best, closure, expected
from workers.pipeline.plan import RARE_SHARE, Limits, plan

COST = Cost(restore_base_seconds=0.1, restore_seconds_per_megabyte=0.002, cold_base_seconds=0.3)
EMPTY_MEGABYTES = 10.0
NAMES = ("a", "b", "c", "d", "e", "f.sub")


@st.composite
def modules(draw: st.DrawFn) -> dict[str, Module]:
    """Some modules, with dependencies in any direction."""
    some = st.lists(st.sampled_from([*NAMES, "elsewhere"]), max_size=3, unique=True)
    return {
        name: Module(
            import_seconds=draw(st.floats(0, 3)), megabytes=draw(st.floats(0, 80)), dependencies=tuple(draw(some))
        )
        for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    }


imports = st.lists(
    st.sampled_from([*NAMES, "a.Thing", "f.sub.Thing", "f.Other", "unknown"]), max_size=4, unique=True
).map(tuple)
corpora = st.lists(st.builds(ImportSet, imports=imports, weight=st.floats(0.1, 10)), min_size=1, max_size=12).map(
    lambda sets: corpus("a test", sets)
)


def generation(some: dict[str, Module], sets: list[tuple[str, ...]], cost: Cost = COST) -> Catalogue:
    """Return the catalogue of a generation with the empty checkpoint and one for each set, exact in size."""
    held = [{module for name in names for module in closure(name, some)} for names in ((), *sets)]
    return Catalogue(
        generation="g",
        flavor="f",
        python="3.11",
        filesystem_digest="",
        cost=cost,
        modules=some,
        checkpoints=tuple(
            Checkpoint(
                id=f"checkpoint_{number}",
                imported=((), *sets)[number],
                holds=tuple(sorted(holds)),
                megabytes=EMPTY_MEGABYTES + sum(some[name].megabytes for name in holds),
                restore_seconds=0,
            )
            for number, holds in enumerate(held)
        ),
    )


def planned_sets(some: dict[str, Module], wanted: Corpus, limits: Limits, cost: Cost = COST) -> list[tuple[str, ...]]:
    made = plan(Demand(some, wanted), cost, empty_megabytes=EMPTY_MEGABYTES, limits=limits)
    return [planned.names for planned in made.sets]


@given(modules(), corpora, st.lists(st.lists(st.sampled_from(NAMES), max_size=4), max_size=4))
def test_costs_are_those_that_the_router_predicts(
    some: dict[str, Module], wanted: Corpus, sets: list[list[str]]
) -> None:
    catalogue = generation(some, [tuple(name for name in names if name in some) for names in sets])
    compiled = CompiledCatalogue(catalogue)
    total = sum(found.weight for found in wanted.sets)
    scores = [(found.weight / total, compiled.scores(ImportHints(imports=found.imports))) for found in wanted.sets]
    said = expected(catalogue, wanted)
    assert said.planned_seconds == pytest.approx(sum(share * score.best.seconds for share, score in scores), abs=1e-6)
    assert said.cold_seconds == pytest.approx(sum(share * score.cold.seconds for share, score in scores), abs=1e-6)


@given(modules(), corpora, st.integers(0, 4), st.floats(0, 400))
def test_a_plan_keeps_its_limits_and_says_what_the_router_will_predict(
    some: dict[str, Module], wanted: Corpus, most: int, megabytes: float
) -> None:
    made = plan(
        Demand(some, wanted),
        COST,
        empty_megabytes=EMPTY_MEGABYTES,
        limits=Limits(checkpoints=most, megabytes=megabytes),
    )
    assert len(made.sets) <= most
    assert sum(planned.megabytes for planned in made.sets) <= megabytes + 1e-6
    catalogue = generation(some, [planned.names for planned in made.sets])
    for planned, checkpoint in zip(made.sets, catalogue.checkpoints[1:], strict=True):
        assert planned.megabytes == pytest.approx(checkpoint.megabytes)
    assert made.mean_seconds == pytest.approx(expected(catalogue, wanted).planned_seconds)


@given(modules(), corpora, st.lists(st.sampled_from(NAMES), max_size=4), st.floats(0, 500))
def test_one_more_checkpoint_never_makes_a_call_slower(
    some: dict[str, Module], wanted: Corpus, added: list[str], megabytes: float
) -> None:
    demand = Demand(some, wanted)
    sets = planned_sets(some, wanted, Limits(checkpoints=3))
    before = [demand.cold_seconds(COST), demand.start_seconds(COST, 0, EMPTY_MEGABYTES)]
    before += [demand.start_seconds(COST, demand.union(names), 50.0) for names in sets]
    more = demand.start_seconds(COST, demand.union(name for name in added if name in demand.names), megabytes)
    assert all(after <= earlier for after, earlier in zip(best([*before, more]), best(before), strict=True))


@given(modules(), corpora)
def test_a_larger_limit_never_makes_a_plan_worse_than_none(some: dict[str, Module], wanted: Corpus) -> None:
    none = expected(generation(some, []), wanted)
    made = plan(Demand(some, wanted), COST, empty_megabytes=EMPTY_MEGABYTES, limits=Limits())
    assert made.mean_seconds <= none.planned_seconds + 1e-9


def random_case(chance: random.Random) -> tuple[dict[str, Module], Corpus]:
    """Return six modules of which some need others, and ten kinds of calls."""
    some = {}
    for number, name in enumerate(NAMES):
        needs = tuple(other for other in NAMES[:number] if chance.random() < 0.3)
        some[name] = Module(
            import_seconds=chance.expovariate(1 / 0.3), megabytes=chance.expovariate(1 / 30), dependencies=needs
        )
    sets = [
        ImportSet(imports=tuple(chance.sample(NAMES, chance.randint(1, 3))), weight=chance.expovariate(1) + 0.05)
        for _ in range(10)
    ]
    return some, corpus("a test", sets)


def optimum(some: dict[str, Module], wanted: Corpus, checkpoints: int, megabytes: float) -> float:
    """Return the lowest mean start of all choices of so many sets or fewer within the limit."""
    demand = Demand(some, wanted)
    always = [demand.cold_seconds(COST), demand.start_seconds(COST, 0, EMPTY_MEGABYTES)]
    images = {}
    for size in range(1, len(demand.names) + 1):
        for names in itertools.combinations(demand.names, size):
            held = demand.union(names)
            images[held] = EMPTY_MEGABYTES + demand.megabytes(held)
    starts = [(size, demand.start_seconds(COST, held, size)) for held, size in images.items()]
    lowest = demand.mean(best(always))
    for chosen in itertools.chain(*(itertools.combinations(starts, count) for count in range(1, checkpoints + 1))):
        if sum(size for size, _ in chosen) <= megabytes:
            lowest = min(lowest, demand.mean(best([*always, *(seconds for _, seconds in chosen)])))
    return lowest


@pytest.mark.parametrize(("megabytes", "worst"), [(1e9, 1e-6), (150.0, 0.05)], ids=["any size", "little memory"])
def test_plans_of_small_cases_are_the_best_of_all(megabytes: float, worst: float) -> None:
    chance = random.Random(7)
    limits = Limits(checkpoints=2, megabytes=megabytes)
    worse = []
    for _ in range(30):
        some, wanted = random_case(chance)
        made = plan(Demand(some, wanted), COST, empty_megabytes=EMPTY_MEGABYTES, limits=limits)
        worse.append(made.mean_seconds / optimum(some, wanted, limits.checkpoints, megabytes) - 1)
    assert min(worse) > -1e-9
    assert max(worse) < worst
    assert fmean(worse) < worst / 10


def one(seconds: float, megabytes: float = 10.0, *needs: str) -> Module:
    return Module(import_seconds=seconds, megabytes=megabytes, dependencies=needs)


def calls(**weights: float) -> Corpus:
    return corpus(
        "a test", [ImportSet(imports=tuple(names.split("_")), weight=weight) for names, weight in weights.items()]
    )


def test_modules_that_calls_need_together_are_in_one_image() -> None:
    some = {"a": one(1), "b": one(1), "c": one(1), "d": one(1)}
    assert planned_sets(some, calls(a_b=3, c_d=2), Limits(checkpoints=2)) == [("a", "b"), ("c", "d")]


def test_a_cheap_import_is_left_to_the_call_when_its_memory_costs_others_more() -> None:
    some = {"a": one(1), "fat": one(0.05, 500)}
    assert planned_sets(some, calls(a=9, a_fat=1), Limits(checkpoints=1)) == [("a",)]


def test_nothing_is_planned_where_a_cold_start_is_the_fastest() -> None:
    cost = COST.model_copy(update={"cold_base_seconds": 0.05})
    assert planned_sets({"a": one(0.01)}, calls(a=1), Limits(), cost) == []


def test_the_empty_checkpoint_counts_as_there() -> None:
    # Restoring it takes 0.12 s; an image with b takes 0.14 s and saves 0.005 s.
    assert planned_sets({"b": one(0.005)}, calls(b=1), Limits()) == []


def test_a_rare_name_is_in_no_image_for_its_own_sake() -> None:
    some = {"a": one(1), "rare": one(50)}
    often, seldom = 1.0, RARE_SHARE * 0.9
    assert planned_sets(some, calls(a=often, rare=seldom), Limits()) == [("a",)]
    assert planned_sets(some, calls(a=often, rare=RARE_SHARE * 1.1), Limits()) == [("a",), ("rare",)]


def test_a_rare_name_that_another_needs_is_in_its_image() -> None:
    some = {"a": one(1, 10, "rare"), "rare": one(1)}
    made = plan(Demand(some, calls(a=1.0, rare=RARE_SHARE / 2)), COST, empty_megabytes=EMPTY_MEGABYTES, limits=Limits())
    assert made.sets[0].megabytes == pytest.approx(EMPTY_MEGABYTES + 20)


def test_what_is_unfit_is_in_no_image_whatever_it_gains() -> None:
    some = {"a": one(1), "threads": one(5)}
    made = plan(
        Demand(some, calls(a_threads=1)), COST, empty_megabytes=EMPTY_MEGABYTES, limits=Limits(), unfit=["threads"]
    )
    assert [planned.names for planned in made.sets] == [("a",)]


def test_the_most_useful_set_comes_first() -> None:
    some = {name: one(1) for name in ("a", "b", "c")}
    assert planned_sets(some, calls(a=1, b=5, c=3), Limits(megabytes=70)) == [("b",), ("c",), ("a",)]


def test_names_resolve_to_the_nearest_module_and_unknown_ones_cost_nothing() -> None:
    some = {"a": one(1), "a.sub": one(2, 10, "a")}
    wanted = corpus("a test", [ImportSet(imports=("a.sub.Thing", "a.other", "own_code.helpers"))])
    assert Demand(some, wanted).import_seconds(0) == [3.0]
