"""What `make bench-check` calls worse."""

from pathlib import Path

import pytest

from benchmarks.baseline import keep, load, worse
from benchmarks.results import EXACT_MARGIN, Ratio
from benchmarks.sampling import percentile, ratio_of_medians

BASELINE = {"cold / ready": Ratio(50.0, "higher", 0.25), "warm / celery": Ratio(1.0, "lower", 0.25)}


def test_ratios_as_they_were_or_within_their_margin_are_no_worse() -> None:
    assert worse({"cold / ready": Ratio(50.0, "higher"), "warm / celery": Ratio(1.0, "lower")}, BASELINE) == []
    assert worse({"cold / ready": Ratio(40.1, "higher"), "warm / celery": Ratio(1.24, "lower")}, BASELINE) == []
    assert worse({"cold / ready": Ratio(500.0, "higher"), "warm / celery": Ratio(0.1, "lower")}, BASELINE) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("cold / ready", 39.9), ("warm / celery", 1.26)],
)
def test_a_ratio_beyond_its_margin_is_named_with_what_it_was_and_may_be(name: str, value: float) -> None:
    measured = {known: Ratio(kept.value, kept.better) for known, kept in BASELINE.items()}
    measured[name] = Ratio(value, BASELINE[name].better)
    (line,) = worse(measured, BASELINE)
    assert line.startswith(f"{name}: {value:.3g}, was {BASELINE[name].value:.3g} and may be {BASELINE[name].worst:.3g}")


def test_a_ratio_that_is_not_measured_any_more_counts_as_worse() -> None:
    assert worse({"cold / ready": Ratio(50.0, "higher")}, BASELINE) == ["warm / celery: was not measured"]


def test_a_baseline_is_read_as_it_was_kept_and_has_no_time_in_it(tmp_path: Path) -> None:
    keep({"a": Ratio(1.2345, "lower"), "round trips": Ratio(6, "lower", EXACT_MARGIN)}, tmp_path / "baseline.json")
    kept = load(tmp_path / "baseline.json")
    assert (kept["a"].value, kept["a"].better) == (1.23, "lower")
    assert kept["round trips"].worst < 7, "one more round trip is seen"


def test_the_baseline_of_the_repository_watches_starts_calls_and_round_trips() -> None:
    names = " ".join(load())
    assert "cold / ready" in names
    assert "warm / celery" in names
    assert "round trips" in names
    assert "oracle" in names


def test_a_ratio_of_medians_comes_with_an_interval_around_it() -> None:
    slow, fast = [10.0, 11.0, 12.0, 13.0, 30.0] * 6, [1.0, 1.1, 1.2, 1.3, 3.0] * 6
    ratio = ratio_of_medians(slow, fast)
    assert ratio.value == pytest.approx(10.0)
    assert ratio.low < ratio.value < ratio.high
    assert percentile([1.0, 2.0, 3.0], 50) == 2.0
    assert percentile([0.0, 10.0], 95) == pytest.approx(9.5)
