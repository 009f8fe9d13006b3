"""Rates of requests, with the clock given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.sandbox.demand import Demand

ids = st.sampled_from([None, "checkpoint_0", "checkpoint_1"])


def test_what_was_never_asked_for_has_no_rate() -> None:
    assert Demand().rate("checkpoint_0", 5.0) == 0.0


def test_a_steady_stream_has_its_own_rate() -> None:
    demand = Demand(half_life_seconds=300)
    for second in range(0, 10_000, 10):
        demand.record("checkpoint_1", second)
    assert demand.rate("checkpoint_1", 9_995) == pytest.approx(0.1, rel=0.05)


def test_a_request_counts_half_after_the_half_life() -> None:
    demand = Demand(half_life_seconds=60)
    demand.record(None, 100.0)
    assert demand.rate(None, 160.0) == pytest.approx(demand.rate(None, 100.0) / 2)
    assert demand.rate("checkpoint_0", 160.0) == 0.0


@given(requests=st.lists(st.tuples(ids, st.floats(0, 1000)), max_size=30), later=st.floats(0, 1000), which=ids)
def test_rates_only_fall_while_nobody_asks(
    requests: list[tuple[str | None, float]], later: float, which: str | None
) -> None:
    demand = Demand()
    for checkpoint_id, at in sorted(requests, key=lambda request: request[1]):
        demand.record(checkpoint_id, at)
    before = demand.rate(which, 1000.0)
    assert 0.0 <= demand.rate(which, 1000.0 + later) <= before
    demand.record(which, 1000.0 + later)
    assert demand.rate(which, 1000.0 + later) > 0.0


def test_a_new_generation_begins_with_the_rates_of_the_checkpoints_it_shares() -> None:
    demand = Demand()
    for checkpoint_id in ("checkpoint_1", "checkpoint_1", "checkpoint_2", None):
        demand.record(checkpoint_id, 0.0)
    carried = demand.renamed({"checkpoint_1": "checkpoint_5"})
    assert carried.rate("checkpoint_5", 60.0) == demand.rate("checkpoint_1", 60.0)
    assert carried.rate(None, 60.0) == demand.rate(None, 60.0)
    assert carried.rate("checkpoint_1", 60.0) == carried.rate("checkpoint_2", 60.0) == 0.0
    carried.record("checkpoint_5", 60.0)
    assert carried.rate("checkpoint_5", 60.0) > demand.rate("checkpoint_1", 60.0), "they are independent"


def test_sandboxes_are_needed_at_hand_as_often_as_calls_come_together() -> None:
    demand = Demand()
    for hour in range(50):
        demand.record("alone", hour * 3600.0)
        for number in range(5):
            demand.record("in bursts", hour * 3600.0 + number / 100)
    now = 50 * 3600.0
    alone, bursts = demand.uses("alone", now, 0.0), demand.uses("in bursts", now, 0.0)
    assert alone[0] == demand.rate("alone", now)
    assert alone[1] < 0.4 * alone[0], "what others do counts for little once a checkpoint has calls enough of its own"
    assert bursts[4] > 0.1 * bursts[0], "one call in five needs a fifth"
    assert len(bursts) == 5
    assert bursts == sorted(bursts, reverse=True)
    assert demand.uses("in bursts", now, bursts[2]) == bursts[:3]


def test_calls_one_after_the_other_need_one_sandbox_however_many_there_are() -> None:
    demand = Demand()
    for second in range(0, 1000, 2):
        demand.record("checkpoint_0", float(second))
    assert len(demand.uses("checkpoint_0", 1000.0, 0.0)) == 1


def test_a_checkpoint_without_a_past_is_expected_to_be_asked_for_as_others_are() -> None:
    demand = Demand()
    for number in range(100):
        demand.record("checkpoint_1", number // 4 * 1000.0)
    demand.record("checkpoint_2", 26_000.0)
    assert len(demand.uses("checkpoint_2", 26_000.0, 0.0)) == 4
