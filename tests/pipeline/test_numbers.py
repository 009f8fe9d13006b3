"""The cost fit, and the shares that modules have in what was measured: pure functions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readie.protocol.catalogue import Module
from workers.pipeline.attribution import attribute
from workers.pipeline.capture import CaptureError, Restore, refuse_clones
from workers.pipeline.cost import fit, restore_seconds
from workers.pipeline.demand import closure
from workers.pipeline.runs import ImportRun, whole


def test_points_on_a_line_give_that_line() -> None:
    cost = fit([(10, 0.2), (50, 0.6), (110, 1.2)], [0.5, 0.3, 9.0])
    assert cost.restore_base_seconds == pytest.approx(0.1)
    assert cost.restore_seconds_per_megabyte == pytest.approx(0.01)
    assert cost.cold_base_seconds == 0.5
    assert restore_seconds(cost, 50) == pytest.approx(0.6)


@given(st.lists(st.tuples(st.floats(1, 1e4), st.floats(1e-3, 100)), min_size=1, max_size=16))
def test_no_fit_predicts_a_restore_in_less_than_no_time(restores: list[tuple[float, float]]) -> None:
    cost = fit(restores, [0.1])
    assert cost.restore_base_seconds >= 0
    assert cost.restore_seconds_per_megabyte >= 0


def test_larger_images_that_restored_faster_are_taken_for_noise() -> None:
    cost = fit([(10, 0.3), (50, 0.1)], [0.1])
    assert cost.restore_seconds_per_megabyte == 0
    assert 0.1 < cost.restore_base_seconds < 0.3


def test_a_slow_large_image_does_not_spoil_the_small_ones() -> None:
    # By absolute errors, the line would go through the large one and miss the small ones by a third.
    points = [(10, 0.10), (20, 0.11), (30, 0.12), (200, 0.60)]
    cost = fit(points, [0.1])
    assert all(abs(restore_seconds(cost, size) - seconds) < 0.25 * seconds for size, seconds in points)


def _run(own_seconds: dict[str, float], megabytes: float = 0.0, after: str | None = None) -> ImportRun:
    return ImportRun(after=after, own_seconds=own_seconds, megabytes=megabytes, loaded=tuple(own_seconds))


def _attribute(runs: dict[str, ImportRun]) -> dict[str, Module]:
    return attribute(runs, whole(runs))


def _total(modules: dict[str, Module], *names: str) -> float:
    needed = {module for name in names for module in closure(name, modules)}
    return sum(modules[name].import_seconds for name in needed)


def test_a_modules_share_is_what_its_dependencies_do_not_load() -> None:
    modules = _attribute(
        {
            "numpy": _run({"numpy": 1.0, "numpy._core": 2.0}, 10),
            "pandas": _run({"pandas": 4.0, "pandas._libs": 8.0, "numpy": 1.0, "numpy._core": 2.0}, 30),
        }
    )
    assert modules["numpy"].import_seconds == 3.0
    assert modules["pandas"].import_seconds == 12.0
    assert modules["pandas"].dependencies == ("numpy",)
    assert (modules["numpy"].megabytes, modules["pandas"].megabytes) == pytest.approx((10, 20), rel=0.05)


def test_what_two_modules_share_behind_the_scenes_counts_once_for_both() -> None:
    modules = _attribute(
        {
            "scipy": _run({"scipy": 1.0}),
            "scipy.stats": _run({"scipy.stats": 2.0, "scipy._lib": 4.0, "scipy._lib._util": 8.0}, after="scipy"),
            "scipy.signal": _run({"scipy.signal": 16.0, "scipy._lib": 4.0, "scipy._lib._util": 8.0}, after="scipy"),
        }
    )
    assert modules["scipy._lib"].import_seconds == 12.0
    assert _total(modules, "scipy.stats") == 15.0
    assert _total(modules, "scipy.stats", "scipy.signal") == 31.0


def test_modules_that_bring_in_each_other_are_one_cost() -> None:
    modules = _attribute(
        {
            "a": _run({"a": 1.0, "b": 2.0, "shared": 4.0}),
            "b": _run({"b": 2.0, "a": 1.0, "shared": 4.0}),
        }
    )
    assert _total(modules, "a") == _total(modules, "b") == _total(modules, "a", "b") == 7.0


def test_a_module_measured_several_times_counts_with_its_median() -> None:
    runs = {name: _run({name: 0.0, "numpy": seconds}) for name, seconds in (("a", 1.0), ("b", 9.0), ("c", 2.0))}
    modules = _attribute(runs)
    assert modules["numpy"].import_seconds == 2.0


def test_a_module_that_cannot_be_imported_has_no_entry() -> None:
    runs = {"numpy": _run({"numpy": 1.0}), "numpy.f2py": ImportRun(after="numpy", error="it fails")}
    assert set(_attribute(runs)) == {"numpy"}


_MODULES = ("a", "b", "c", "d", "e", "f")


@given(
    seconds=st.fixed_dictionaries({name: st.integers(1, 100) for name in _MODULES}),
    imports=st.fixed_dictionaries({name: st.sets(st.sampled_from(_MODULES)) for name in _MODULES}),
    measured=st.sets(st.sampled_from(_MODULES), min_size=1),
)
def test_the_shares_of_any_set_of_modules_add_up_to_its_import(
    seconds: dict[str, int], imports: dict[str, set[str]], measured: set[str]
) -> None:
    def loaded(name: str, seen: frozenset[str] = frozenset()) -> frozenset[str]:
        for other in imports[name] - seen - {name}:
            seen |= {other}
            seen |= loaded(other, seen | {name})
        return seen | {name}

    modules = _attribute({name: _run({other: float(seconds[other]) for other in loaded(name)}) for name in measured})
    for names in ([name] for name in measured):
        assert _total(modules, *names) == pytest.approx(sum(seconds[other] for other in loaded(names[0])))
    everything = frozenset[str]().union(*(loaded(name) for name in measured))
    assert _total(modules, *measured) == pytest.approx(sum(seconds[other] for other in everything))


def test_equal_draws_of_two_clones_are_named() -> None:
    clones = [Restore(0.1, drawn) for drawn in ({"random": "1", "ssl": "a"}, {"random": "2", "ssl": "b"})]
    refuse_clones("checkpoint_1", clones)
    with pytest.raises(CaptureError, match=r"checkpoint_1: its clones draw the same values from random$"):
        refuse_clones("checkpoint_1", [*clones, Restore(0.1, {"random": "1", "ssl": "c"})])


def test_threads_of_a_clone_are_named() -> None:
    with pytest.raises(CaptureError, match=r"checkpoint_1: the snapshot has threads of Python: watcher$"):
        refuse_clones("checkpoint_1", [Restore(0.1, {}), Restore(0.1, {}, ("watcher",))])
