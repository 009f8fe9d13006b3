"""The choice of a worker as a pure function."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from router_cluster import PYTHON, catalogue, header
from test_scoring import naive_costs

from readie.protocol.announcement import Announcement
from readie.protocol.call import CallHeader
from readie.protocol.codes import ErrorCode
from router import placement
from router.candidates import Candidates, turn
from router.catalogue import CompiledCatalogue
from router.needs import Needs, Nobody, Refused, WorkerState
from router.placement import Chosen, soonest, ways

CATALOGUES = [
    catalogue(generation="empty"),
    catalogue(("numpy",), generation="numpy"),
    catalogue(("numpy",), ("numpy", "numpy.linalg", "pandas"), generation="pandas"),
]
GENERATIONS = [None, *map(CompiledCatalogue, CATALOGUES)]


def worker(
    name: str,
    *,
    slots: int = 4,
    busy: int = 0,
    python: str = PYTHON,
    generation: CompiledCatalogue | None = None,
    draining: bool = False,
    flavor: str = "default",
    memory: int | None = None,
    call_memory: int | None = None,
    reserved: int = 0,
    ready: Mapping[str | None, int] | None = None,
    avoided: Iterable[str] = (),
    bounds_cpu: bool = True,
    among_equals: int = 0,
) -> WorkerState:
    announcement = Announcement(
        name=name,
        incarnation="1",
        pid=1,
        slots=slots,
        draining=draining,
        flavor=flavor,
        python=python,
        runsc_version="",
        generation=None,
        catalogue=None,
        memory_bytes=memory,
        call_memory_bytes=call_memory,
        bounds_cpu=bounds_cpu,
    )
    return WorkerState(
        announcement, generation, busy, reserved, dict(ready or {}), frozenset(avoided), turn=among_equals
    )


CHECKPOINTS = ["checkpoint_0", "checkpoint_1", "checkpoint_2"]
workers = st.lists(
    st.builds(
        worker,
        st.text("abc", min_size=1, max_size=4),
        slots=st.integers(1, 4),
        busy=st.integers(0, 5),
        python=st.sampled_from([PYTHON, "3.12"]),
        generation=st.sampled_from(GENERATIONS),
        draining=st.booleans(),
        flavor=st.sampled_from(["default", "science"]),
        memory=st.sampled_from([None, 10, 20]),
        call_memory=st.sampled_from([None, 5]),
        reserved=st.integers(0, 20),
        ready=st.dictionaries(st.sampled_from([None, *CHECKPOINTS]), st.integers(0, 2), max_size=2),
        avoided=st.sets(st.sampled_from(CHECKPOINTS)),
        among_equals=st.integers(0, 2),
    ),
    max_size=8,
    unique_by=lambda state: state.announcement.name,
)
calls = st.builds(
    header,
    st.just("c"),
    imports=st.lists(st.sampled_from(["numpy", "pandas.DataFrame", "unknown"]), max_size=3),
    python=st.sampled_from([PYTHON, "3.12", "3.13"]),
    pin=st.sampled_from([None, "checkpoint_0", "checkpoint_2", "checkpoint_7"]),
    cold=st.booleans(),
    flavor=st.sampled_from(["default", "science", "unknown"]),
    memory=st.sampled_from([None, 1, 15, 25]),
)


def choose(call: CallHeader, fleet: list[WorkerState]) -> Chosen | Nobody | Refused:
    return placement.choose(call, Candidates(fleet))


@given(calls, workers)
def test_only_a_live_fitting_worker_with_a_free_slot_is_chosen(call: CallHeader, fleet: list[WorkerState]) -> None:
    decision = choose(call, fleet)
    if isinstance(decision, Chosen):
        assert decision.worker in fleet
        announcement = decision.worker.announcement
        assert decision.worker.free > 0
        assert announcement.python == call.python
        assert announcement.flavor == call.options.flavor
        if announcement.memory_bytes is not None:
            needed = call.options.memory_bytes or announcement.call_memory_bytes or 0
            assert decision.worker.reserved_bytes + needed <= announcement.memory_bytes
        if decision.checkpoint_id is not None:
            assert decision.worker.catalogue is not None
            assert decision.checkpoint_id in decision.worker.catalogue.checkpoint_ids
            assert not call.options.disable_optimized_execution
        if call.options.checkpoint_id is not None:
            assert decision.checkpoint_id == call.options.checkpoint_id
    elif isinstance(decision, Nobody) and call.options.checkpoint_id is None:
        assert not any(
            state.has_room(Needs.of(call))
            and state.announcement.python == call.python
            and state.announcement.flavor == call.options.flavor
            for state in fleet
        )


@given(calls, workers)
def test_the_chosen_worker_has_the_lowest_prediction_then_the_lowest_load(
    call: CallHeader, fleet: list[WorkerState]
) -> None:
    decision = choose(call, fleet)
    if not isinstance(decision, Chosen):
        return
    chosen_alone = {state.announcement.name: choose(call, [state]) for state in fleet}

    def rank(state: WorkerState) -> tuple[float, float] | None:
        alone = chosen_alone[state.announcement.name]
        if not isinstance(alone, Chosen):
            return None
        predicted = float("inf") if alone.predicted_seconds is None else alone.predicted_seconds
        return predicted, state.busy / state.announcement.slots

    ranks = [found for state in fleet if (found := rank(state)) is not None]
    assert rank(decision.worker) == min(ranks)


@given(st.lists(st.tuples(calls, st.booleans()), min_size=1, max_size=12), workers)
def test_what_is_chosen_call_after_call_is_what_a_look_at_every_worker_finds(
    placed: list[tuple[CallHeader, bool]], fleet: list[WorkerState]
) -> None:
    candidates = Candidates(fleet)
    for call, stays in placed:
        decision = placement.choose(call, candidates)
        fit = candidates.fitting(Needs.of(call))
        if not isinstance(decision, Chosen):
            assert isinstance(decision, Refused) or not isinstance(fit, list) or not free(call, fit)
            continue
        assert isinstance(fit, list)
        worker, start = soonest(call, free(call, fit))
        assert decision.worker is worker
        assert (decision.checkpoint_id, decision.predicted_seconds) == (start.checkpoint_id, start.predicted_seconds)
        worker.take(call.options.memory_bytes, decision.checkpoint_id)
        if not stays:
            candidates.give_back(worker, call.options.memory_bytes, decision.checkpoint_id)


def test_several_routers_do_not_all_choose_the_same_of_equal_workers() -> None:
    names = [f"worker{number}" for number in range(100)]
    chosen = set()
    for router in range(20):
        order = [turn(str(router).encode(), name.encode()) for name in names]
        fleet = [worker(name, among_equals=place) for name, place in zip(names, order, strict=True)]
        decision = choose(header("c"), fleet)
        assert isinstance(decision, Chosen)
        assert decision.worker.turn == min(order)
        chosen.add(decision.worker.announcement.name)
    assert len(chosen) > 10


def free(call: CallHeader, fit: list[WorkerState]) -> list[WorkerState]:
    return [worker for worker in fit if worker.has_room(Needs.of(call))]


@given(calls, workers, st.randoms(use_true_random=False))
def test_the_order_in_which_workers_are_seen_does_not_matter(
    call: CallHeader, fleet: list[WorkerState], chance: random.Random
) -> None:
    before = choose(call, fleet)
    shuffled = list(fleet)
    chance.shuffle(shuffled)
    assert choose(call, shuffled) == before


@given(calls, workers)
def test_a_refusal_does_not_depend_on_load(call: CallHeader, fleet: list[WorkerState]) -> None:
    idle = [replace(state, busy=0, reserved_bytes=0) for state in fleet]
    assert isinstance(choose(call, fleet), Refused) == isinstance(choose(call, idle), Refused)


def test_more_slots_make_a_worker_less_loaded() -> None:
    decision = choose(header("c"), [worker("small", slots=2, busy=1), worker("large", slots=10, busy=2)])
    assert isinstance(decision, Chosen)
    assert decision.worker.announcement.name == "large"


def test_a_prediction_is_preferred_to_none() -> None:
    fleet = [worker("unknown"), worker("known", busy=3, generation=GENERATIONS[1])]
    decision = choose(header("c", imports=["pandas"]), fleet)
    assert isinstance(decision, Chosen)
    assert decision.worker.announcement.name == "known"


def test_a_pin_that_only_a_worker_of_another_python_lists_is_unknown() -> None:
    fleet = [worker("other", python="3.12", generation=GENERATIONS[3]), worker("same", generation=GENERATIONS[1])]
    decision = choose(header("c", pin="checkpoint_2"), fleet)
    assert isinstance(decision, Refused)
    assert decision.code is ErrorCode.INVALID_REQUEST
    assert "checkpoint_0" in decision.message
    assert "checkpoint_1" not in decision.message


def test_a_call_that_asks_for_cores_goes_where_they_can_be_bounded() -> None:
    without, able = worker("a", bounds_cpu=False), worker("b", busy=3)
    decision = choose(header("c", cpu=1.5), [without, able])
    assert isinstance(decision, Chosen)
    assert decision.worker is able
    refused = choose(header("c", cpu=1.5), [without])
    assert isinstance(refused, Refused)
    assert refused.code is ErrorCode.RESOURCE_EXHAUSTED
    assert "cpu=" in refused.message


def test_a_worker_that_holds_more_than_its_slots_is_full() -> None:
    assert choose(header("c"), [worker("over", slots=1, busy=3)]) == Nobody("all workers are full")


@given(calls, workers)
def test_a_start_is_the_fastest_that_its_worker_has(call: CallHeader, fleet: list[WorkerState]) -> None:
    decision = choose(call, fleet)
    if not isinstance(decision, Chosen) or decision.worker.catalogue is None:
        return
    options, worker = call.options, decision.worker
    if options.disable_optimized_execution or options.checkpoint_id is not None:
        return
    first = min(ways(worker.catalogue.scores(call.hints), worker), key=lambda way: round(way.seconds, 9))
    assert (decision.checkpoint_id, decision.predicted_seconds) == (first.checkpoint_id, first.seconds)
    assert decision.checkpoint_id not in worker.avoided or worker.is_ready(decision.checkpoint_id)


def naive_best(call: CallHeader, state: WorkerState) -> float:
    """The fastest start on one worker by the formula as it is written down."""
    if state.catalogue is None:
        return float("inf")
    some = CATALOGUES[GENERATIONS.index(state.catalogue) - 1]
    costs = naive_costs(some, call.hints)
    sizes = {checkpoint.id: checkpoint.megabytes for checkpoint in some.checkpoints}
    found = [cost for checkpoint_id, cost in costs.items() if checkpoint_id not in state.avoided]
    for checkpoint_id, count in state.ready.items():
        if count and checkpoint_id in costs:
            fixed = (
                some.cost.cold_base_seconds
                if checkpoint_id is None
                else some.cost.restore_base_seconds + some.cost.restore_seconds_per_megabyte * sizes[checkpoint_id]
            )
            found.append(costs[checkpoint_id] - fixed)
    return min(found)


@given(calls, workers)
def test_no_worker_with_room_would_start_the_call_sooner(call: CallHeader, fleet: list[WorkerState]) -> None:
    options = call.options
    decision = choose(call, fleet)
    if not isinstance(decision, Chosen) or options.disable_optimized_execution or options.checkpoint_id is not None:
        return
    best = min(
        naive_best(call, state)
        for state in fleet
        if state.announcement.flavor == options.flavor
        and state.announcement.python == call.python
        and state.has_room(Needs.of(call))
    )
    chosen = float("inf") if decision.predicted_seconds is None else decision.predicted_seconds
    assert chosen == pytest.approx(best, abs=1e-8)


PANDAS = GENERATIONS[3]


def test_a_ready_sandbox_costs_the_missing_imports_only() -> None:
    decision = choose(header("c", imports=["pandas"]), [worker("w", generation=PANDAS, ready={"checkpoint_1": 1})])
    assert isinstance(decision, Chosen)
    # checkpoint_2 holds pandas: 0.1 + 0.001 * 76 = 0.176 s; a ready checkpoint_1 lacks its 0.5 s.
    assert decision.checkpoint_id == "checkpoint_2"
    decision = choose(header("c", imports=["numpy"]), [worker("w", generation=PANDAS, ready={"checkpoint_1": 1})])
    assert isinstance(decision, Chosen)
    assert (decision.checkpoint_id, decision.predicted_seconds) == ("checkpoint_1", 0.0)
    assert "ready" in decision.reason


def test_a_sandbox_that_was_started_cold_ahead_is_a_way_too() -> None:
    for call in (header("c"), header("c", cold=True)):
        state = worker("w", generation=PANDAS, ready={None: 1})
        decision = choose(call, [state])
        assert isinstance(decision, Chosen)
        assert (decision.checkpoint_id, decision.predicted_seconds) == (None, 0.0)
        state.take(None, decision.checkpoint_id)
        assert not state.is_ready(None)
    decision = choose(header("c", imports=["pandas"]), [worker("w", generation=PANDAS, ready={None: 1})])
    assert isinstance(decision, Chosen)
    assert decision.checkpoint_id == "checkpoint_2"


def test_a_ready_cold_start_is_left_to_calls_that_can_use_no_other() -> None:
    state = worker("w", generation=PANDAS, ready={None: 1, "checkpoint_1": 1})
    chosen = []
    for call in (header("c"), header("c", cold=True)):
        decision = choose(call, [state])
        assert isinstance(decision, Chosen)
        chosen.append(decision.checkpoint_id)
    assert chosen == ["checkpoint_1", None]


def test_a_worker_with_a_ready_sandbox_is_preferred_until_it_is_taken() -> None:
    fleet = [worker("ready", busy=3, generation=PANDAS, ready={"checkpoint_2": 1}), worker("idle", generation=PANDAS)]
    chosen = []
    for _ in range(2):
        decision = choose(header("c", imports=["pandas"]), fleet)
        assert isinstance(decision, Chosen)
        decision.worker.take(None, decision.checkpoint_id)
        chosen.append(decision.worker.announcement.name)
    assert chosen == ["ready", "idle"]


def test_what_was_counted_for_a_call_that_was_not_placed_is_taken_back() -> None:
    state = worker("w", generation=PANDAS, memory=100, call_memory=30, ready={"checkpoint_2": 1})
    state.take(None, "checkpoint_2")
    state.take(50, "checkpoint_1")
    assert (state.busy, state.reserved_bytes, state.ready) == (2, 80, {"checkpoint_2": 0})
    state.take(None, "checkpoint_2", calls=-1)
    state.take(50, "checkpoint_1", calls=-1)
    assert (state.busy, state.reserved_bytes, state.ready) == (0, 0, {"checkpoint_2": 1})


def test_a_checkpoint_that_failed_to_restore_is_avoided_on_that_worker_only() -> None:
    failing = worker("failing", generation=PANDAS, avoided=["checkpoint_2"])
    decision = choose(header("c", imports=["pandas"]), [failing])
    assert isinstance(decision, Chosen)
    assert decision.checkpoint_id == "checkpoint_1"
    decision = choose(header("c", imports=["pandas"]), [failing, worker("well", busy=3, generation=PANDAS)])
    assert isinstance(decision, Chosen)
    assert (decision.worker.announcement.name, decision.checkpoint_id) == ("well", "checkpoint_2")


def test_a_worker_all_of_whose_checkpoints_failed_starts_cold() -> None:
    decision = choose(header("c"), [worker("w", generation=PANDAS, avoided=CHECKPOINTS)])
    assert isinstance(decision, Chosen)
    assert decision.checkpoint_id is None
    assert decision.reason == "every checkpoint failed to restore"


def test_a_pin_is_kept_where_it_failed_to_restore_but_goes_elsewhere_first() -> None:
    failing = worker("failing", generation=PANDAS, avoided=["checkpoint_2"])
    decision = choose(header("c", imports=["pandas"], pin="checkpoint_2"), [failing])
    assert isinstance(decision, Chosen)
    assert decision.checkpoint_id == "checkpoint_2"
    # It will start cold: 0.3 + 0.2 + 0.5
    assert decision.predicted_seconds == pytest.approx(1.0)
    both = [failing, worker("well", busy=3, generation=PANDAS)]
    decision = choose(header("c", imports=["pandas"], pin="checkpoint_2"), both)
    assert isinstance(decision, Chosen)
    assert decision.worker.announcement.name == "well"


@given(calls)
def test_a_group_is_named_after_all_that_decides_who_can_take_its_calls(call: CallHeader) -> None:
    assert Needs.of_group(Needs.of(call).group()) == Needs.of(call)


@pytest.mark.parametrize("name", ["", "group", "5", "[]", "{}", '["default"]'])
def test_what_is_no_group_of_ours_is_said_to_be_none(name: str) -> None:
    with pytest.raises(ValueError, match=r"not a group|JSON|value"):
        Needs.of_group(name)
