"""Which ready sandboxes are kept: pure decisions."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from workers.sandbox.stock import Kind, Step, next_step, plan

MB = 10**6
NEVER, HOURLY, STEADY, BUSY = 0.0, 1 / 3600, 1 / 60, 1.0


def uses(rate: float, together: float) -> list[float]:
    """Return the uses of each sandbox where of those who use one so many use the next as well."""
    return [rate * together**position for position in range(40)]


Kinds = dict[str | None, Kind]
kinds_of_any_sort = st.dictionaries(
    st.sampled_from([None, *(f"checkpoint_{number}" for number in range(6))]),
    st.builds(
        Kind,
        uses=st.sampled_from(
            [
                uses(rate, together)
                for rate in (NEVER, HOURLY, 1 / 600, STEADY, 0.2, BUSY)
                for together in (0.0, 0.1, 0.5, 0.9)
            ]
        ),
        saved_seconds=st.sampled_from([0.05, 0.2, 0.7, 3.0]),
        memory_bytes=st.integers(20, 400).map(lambda megabytes: megabytes * MB),
        held=st.integers(0, 4),
        makeable=st.sampled_from([True, True, True, False]),
    ),
    max_size=6,
)
budgets = st.integers(0, 3000).map(lambda megabytes: megabytes * MB)


def kind(
    rate: float = STEADY, saved_seconds: float = 0.2, megabytes: int = 50, held: int = 0, together: float = 0.5
) -> Kind:
    return Kind(uses(rate, together), saved_seconds, megabytes * MB, held)


def size(kinds: Kinds, ids: list[str | None]) -> int:
    return sum(kinds[checkpoint_id].memory_bytes for checkpoint_id in ids)


@given(kinds_of_any_sort, budgets)
def test_a_plan_never_exceeds_the_budget(kinds: Kinds, budget: int) -> None:
    assert size(kinds, plan(kinds, budget)) <= budget


@given(kinds_of_any_sort, budgets, st.sampled_from([1.5, 4.0, 50.0]))
def test_more_demand_never_gets_less(kinds: Kinds, budget: int, factor: float) -> None:
    assume(kinds)
    name = next(iter(kinds))
    more = kinds | {name: kinds[name]._replace(uses=[factor * used for used in kinds[name].uses])}
    assert plan(more, budget).count(name) >= plan(kinds, budget).count(name)


@given(kinds_of_any_sort, budgets, st.sampled_from([1.5, 4.0]))
def test_what_saves_more_never_gets_less(kinds: Kinds, budget: int, factor: float) -> None:
    assume(kinds)
    name = next(iter(kinds))
    more = kinds | {name: kinds[name]._replace(saved_seconds=kinds[name].saved_seconds * factor)}
    assert plan(more, budget).count(name) >= plan(kinds, budget).count(name)


@given(kinds_of_any_sort)
def test_with_room_for_all_nobody_is_planned_at_the_expense_of_another(kinds: Kinds) -> None:
    together = plan(kinds, 10**15)
    for name, one in kinds.items():
        assert together.count(name) == plan({name: one}, 10**15).count(name)


@given(kinds_of_any_sort, budgets)
def test_steps_lead_to_the_plan_and_end_there(kinds: Kinds, budget: int) -> None:
    kinds = dict(kinds)
    held = size(kinds, [name for name, one in kinds.items() for _ in range(one.held)])
    for _ in range(200):
        step = next_step(kinds, budget)
        if step is None:
            break
        one = kinds[step.checkpoint_id]
        if step.action == "make":
            assert one.makeable
            assert held + one.memory_bytes <= budget, "nothing is made without room for it"
        change = 1 if step.action == "make" else -1
        held += change * one.memory_bytes
        kinds[step.checkpoint_id] = one._replace(held=one.held + change)
    else:
        pytest.fail("no end")
    assert held <= budget
    assert all(kinds[name].held >= count for name, count in Counter(plan(kinds, budget)).items())


@given(kinds_of_any_sort, budgets)
def test_what_can_not_be_made_is_not_waited_for(kinds: Kinds, budget: int) -> None:
    step = next_step(kinds, budget)
    assert step is None or step.action == "evict" or kinds[step.checkpoint_id].makeable


def test_without_demand_nothing_is_kept_and_with_a_little_one() -> None:
    assert plan({"checkpoint_1": kind(NEVER)}, 10**12) == []
    assert plan({"checkpoint_1": kind(HOURLY, together=0.0)}, 10**12) == ["checkpoint_1"]


def test_more_are_kept_of_what_is_asked_for_more_often() -> None:
    counts = [len(plan({"checkpoint_1": kind(rate)}, 10**12)) for rate in (HOURLY, 1 / 120, STEADY, 0.2)]
    assert counts == sorted(set(counts))
    assert counts[-1] < 40, "but not without end"


def test_a_budget_that_holds_one_holds_the_one_in_demand() -> None:
    kinds: Kinds = {"checkpoint_0": kind(HOURLY, megabytes=50), "checkpoint_1": kind(STEADY, megabytes=100)}
    assert plan(kinds, 110 * MB) == ["checkpoint_1"]


def test_room_is_made_for_what_is_worth_more() -> None:
    kinds: Kinds = {"checkpoint_0": kind(HOURLY, held=2), "checkpoint_1": kind(BUSY, held=0)}
    assert next_step(kinds, 100 * MB) == Step("evict", "checkpoint_0")
    kinds["checkpoint_0"] = kind(HOURLY, held=0)
    assert next_step(kinds, 100 * MB) == Step("make", "checkpoint_1")


def test_memory_is_given_back_when_demand_is_gone() -> None:
    assert next_step({"checkpoint_0": kind(NEVER, held=3)}, 10**12) == Step("evict", "checkpoint_0")
    assert next_step({"checkpoint_0": kind(HOURLY, held=1, together=0.0)}, 10**12) is None


def test_two_of_nearly_equal_demand_do_not_displace_each_other() -> None:
    for held in ("checkpoint_0", "checkpoint_1"):
        kinds: Kinds = {"checkpoint_0": kind(STEADY), "checkpoint_1": kind(STEADY * 1.1)}
        kinds[held] = kinds[held]._replace(held=1)
        assert next_step(kinds, 60 * MB) is None


def test_what_is_likeliest_asked_for_next_is_made_first() -> None:
    kinds: Kinds = {None: kind(STEADY, saved_seconds=0.7, held=1), "checkpoint_1": kind(STEADY, megabytes=100)}
    assert plan(kinds, 10**10)[:2] == [None, None], "by worth, a second cold one comes before a first of the other"
    assert next_step(kinds, 10**10) == Step("make", "checkpoint_1")


def test_an_enormous_demand_is_still_a_plan() -> None:
    assert len(plan({"checkpoint_0": kind(1e9)}, 1000 * MB)) == 20
