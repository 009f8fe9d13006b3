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
