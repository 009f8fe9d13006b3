"""The simulation that benchmarks judge decisions with: nothing is lost in it, and nothing beats its oracle."""

from __future__ import annotations

from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.decisions import COSTS, Setting, oracle, read_catalogue, rule, simulate
from benchmarks.oracle import Saving, draw, hull
from benchmarks.week import Call, Week, make_week
from readie.protocol.call import ImportHints
from workers.pipeline.corpus import ImportSet, corpus

OURS = rule(read_catalogue())
SETS = [(), ("numpy",), ("pandas",), ("sklearn.svm",), ("requests", "pandas"), ("matplotlib.pyplot", "networkx")]
KINDS = [ImportHints(imports=imports) for imports in SETS]
CORPUS = corpus("test", [ImportSet(imports=imports, weight=5.0 + number) for number, imports in enumerate(SETS)])

small_weeks = st.lists(
    st.builds(Call, st.floats(0, 30), st.integers(0, len(KINDS) - 1), st.floats(0, 5)), min_size=1, max_size=40
).map(lambda calls: Week(KINDS, sorted(calls)))
settings_of_small_weeks = st.builds(
    Setting, workers=st.integers(1, 2), ready_megabytes=st.sampled_from([0, 100, 300, 2000]), created=st.integers(0, 2)
)


@settings(max_examples=40, deadline=None)
@given(small_weeks, settings_of_small_weeks)
def test_the_oracle_is_never_worse_and_every_call_starts_once(week: Week, setting: Setting) -> None:
    started = simulate(OURS, week, setting)
    assert sorted(found.call for found in started) == week.calls
    assert all(found.wait_seconds == 0 for found in started)
    starts = [found.start_seconds for found in started]
    assert fmean(oracle(OURS, week, setting)) <= fmean(starts) + 1e-9


def test_with_few_slots_calls_wait_and_none_is_lost() -> None:
    week = Week(KINDS, [Call(1.0 + number / 1000, 1, 2.0) for number in range(20)])
    started = simulate(OURS, week, Setting(workers=2, slots=3))
    assert sorted(found.call for found in started) == week.calls
    waits = sorted(found.wait_seconds for found in started)
    assert waits[5] == 0.0
    assert waits[6] >= 1.9, "two workers with three slots run six at once"
    assert waits[-1] >= 3 * 1.9


def test_a_week_and_what_becomes_of_it_are_the_same_for_the_same_seed() -> None:
    week, again, other = (make_week(CORPUS, 0.002, 2.0, seed) for seed in (7, 7, 8))
    assert week == again
    assert week.calls != other.calls
    assert simulate(OURS, week, Setting()) == simulate(OURS, again, Setting())


def test_with_more_memory_the_oracle_comes_nearer_to_having_all_ready_and_no_further() -> None:
    week = Week(KINDS, [Call(1.0, number % len(KINDS), 1.0) for number in range(30)])
    means = [
        fmean(oracle(OURS, week, Setting(workers=1, ready_megabytes=megabytes))) for megabytes in (0, 300, 900, 9000)
    ]
    assert means == sorted(set(means), reverse=True)
    lacking = [min(start.import_seconds for start in OURS.compiled.scores(hints).starts) for hints in KINDS]
    assert means[-1] == pytest.approx(COSTS.ready_seconds + fmean(lacking))


savings = st.lists(
    st.tuples(st.floats(0, 20), st.floats(1, 50), st.floats(0.01, 1)).map(
        lambda one: (one[0], [Saving(megabytes=one[1], seconds=one[2])])
    ),
    max_size=7,
).map(lambda calls: sorted(calls, key=lambda call: call[0]))


@given(savings, st.floats(1, 100), st.floats(0.1, 10))
def test_no_choice_of_sandboxes_that_fits_the_memory_saves_more_than_the_oracle(
    calls: list[tuple[float, list[Saving]]], depth: float, rate: float
) -> None:
    saved = draw(calls, depth, rate)
    assert all(-1e-9 <= found <= steps[0].seconds + 1e-9 for found, (_, steps) in zip(saved, calls, strict=True))
    best = max(
        sum(calls[number][1][0].seconds for number in chosen)
        for size in range(len(calls) + 1)
        for chosen in combinations(range(len(calls)), size)
        if _fits([(calls[number][0], calls[number][1][0].megabytes) for number in chosen], depth, rate)
    )
    assert sum(saved) >= best - 1e-6


def _fits(taken: list[tuple[float, float]], depth: float, rate: float) -> bool:
    level, before = depth, 0.0
    for at, megabytes in taken:
        level = min(depth, level + (at - before) * rate) - megabytes
        before = at
        if level < 0:
            return False
    return True


def test_smaller_sandboxes_count_only_where_they_save_more_for_their_size() -> None:
    assert hull(1.0, [(100, 0.2), (50, 0.9), (200, 0.1), (300, 0.1)]) == [
        Saving(100, pytest.approx(0.8)),
        Saving(100, pytest.approx(0.1)),
    ]
