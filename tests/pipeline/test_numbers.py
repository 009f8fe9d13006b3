"""The cost fit and the shares of import time, which are pure functions."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.pipeline.capture import CaptureError, Restore, refuse_equal_clones
from workers.pipeline.cost import fit
from workers.pipeline.measure import attribute, shared_packages
from workers.pipeline.runs import ImportRun


def test_points_on_a_line_give_that_line() -> None:
    cost = fit([(10, 0.2), (50, 0.6), (110, 1.2)], [0.5, 0.3, 9.0])
    assert cost.restore_base_seconds == pytest.approx(0.1)
    assert cost.restore_seconds_per_megabyte == pytest.approx(0.01)
    assert cost.cold_base_seconds == 0.5


@given(st.lists(st.tuples(st.floats(1, 1e4), st.floats(1e-3, 100)), min_size=1, max_size=16))
def test_no_fit_predicts_a_restore_in_less_than_no_time(restores: list[tuple[float, float]]) -> None:
    cost = fit(restores, [0.1])
    assert cost.restore_base_seconds >= 0
    assert cost.restore_seconds_per_megabyte >= 0


def test_larger_images_that_restored_faster_are_taken_for_noise() -> None:
    cost = fit([(10, 0.3), (50, 0.1)], [0.1])
    assert cost.restore_seconds_per_megabyte == 0
    assert cost.restore_base_seconds == pytest.approx(0.2)


def _run(own_seconds: dict[str, float], megabytes: float = 0.0) -> ImportRun:
    return ImportRun(own_seconds, megabytes, frozenset(own_seconds))


def test_a_modules_share_is_what_its_dependencies_do_not_load() -> None:
    modules = attribute(
        {
            "numpy": _run({"numpy": 1.0, "numpy._core": 2.0}, 10),
            "pandas": _run({"pandas": 4.0, "pandas._libs": 8.0, "numpy": 1.5, "numpy._core": 2.5}, 30),
        }
    )
    assert modules["numpy"].import_seconds == 3.0
    assert modules["pandas"].import_seconds == 12.0
    assert modules["pandas"].dependencies == ("numpy",)
    assert (modules["numpy"].megabytes, modules["pandas"].megabytes) == (10, 20)


def test_of_modules_that_bring_in_each_other_one_carries_what_they_share() -> None:
    modules = attribute(
        {
            "a": _run({"a": 1.0, "b": 2.0, "shared": 4.0}),
            "b": _run({"b": 2.0, "a": 1.0, "shared": 4.0}),
        }
    )
    assert modules["a"].dependencies == ("b",)
    assert modules["b"].dependencies == ("a",)
    assert sum(module.import_seconds for module in modules.values()) == 7.0


_MODULES = ("a", "b", "c", "d", "e", "f")


@given(
    seconds=st.fixed_dictionaries({name: st.integers(1, 100) for name in _MODULES}),
    imports=st.fixed_dictionaries({name: st.sets(st.sampled_from(_MODULES)) for name in _MODULES}),
)
def test_the_shares_of_a_closure_add_up_to_its_import(seconds: dict[str, int], imports: dict[str, set[str]]) -> None:
    def closure(name: str, seen: frozenset[str] = frozenset()) -> frozenset[str]:
        for other in imports[name] - seen - {name}:
            seen |= {other}
            seen |= closure(other, seen | {name})
        return seen | {name}

    # With every module catalogued nothing is loaded by two of them behind the catalogue's back.
    runs = {name: _run({loaded: float(seconds[loaded]) for loaded in closure(name)}) for name in _MODULES}
    modules = attribute(runs)
    for name in _MODULES:
        total = sum(modules[other].import_seconds for other in (name, *modules[name].dependencies))
        assert total == pytest.approx(sum(seconds[loaded] for loaded in closure(name)))


def test_what_several_modules_share_is_catalogued(tmp_path: Path) -> None:
    for name in ("scipy/stats", "scipy/io", "scipy/_lib"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "threadpoolctl.py").touch()
    loaded = {
        "scipy",
        "scipy.stats",
        "scipy.stats.distributions",
        "scipy._lib",
        "threadpoolctl",
        "json",
        "json.decoder",
    }
    runs = {
        "sklearn.svm": _run(dict.fromkeys(loaded, 1.0)),
        "sklearn.tree": _run(dict.fromkeys({*loaded, "scipy.io"}, 1.0)),
    }
    assert shared_packages(runs, tmp_path) == {"scipy", "scipy.stats", "threadpoolctl"}


def test_equal_draws_of_two_clones_are_named() -> None:
    clones = [Restore(0.1, drawn) for drawn in ({"random": "1", "ssl": "a"}, {"random": "2", "ssl": "b"})]
    refuse_equal_clones("checkpoint_1", clones)
    with pytest.raises(CaptureError, match=r"checkpoint_1: its clones draw the same values from random$"):
        refuse_equal_clones("checkpoint_1", [*clones, Restore(0.1, {"random": "1", "ssl": "c"})])
