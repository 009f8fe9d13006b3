"""The choice of a worker as a pure function."""

import random

from hypothesis import given
from hypothesis import strategies as st
from router_cluster import PYTHON, catalogue, header

from readie.protocol.announcement import Announcement
from readie.protocol.call import CallHeader
from readie.protocol.codes import ErrorCode
from router.catalogue import CompiledCatalogue
from router.placement import Chosen, Nobody, Refused, WorkerState, choose

GENERATIONS = [
    None,
    CompiledCatalogue(catalogue(generation="empty")),
    CompiledCatalogue(catalogue(("numpy",), generation="numpy")),
    CompiledCatalogue(catalogue(("numpy",), ("numpy", "numpy.linalg", "pandas"), generation="pandas")),
]


def worker(
    name: str,
    *,
    slots: int = 4,
    busy: int = 0,
    python: str = PYTHON,
    generation: CompiledCatalogue | None = None,
    draining: bool = False,
) -> WorkerState:
    announcement = Announcement(
        name=name,
        incarnation="1",
        pid=1,
        slots=slots,
        draining=draining,
        flavor="default",
        python=python,
        runsc_version="",
        generation=None,
        catalogue=None,
    )
    return WorkerState(announcement, generation, busy)


workers = st.lists(
    st.builds(
        worker,
        st.text("abc", min_size=1, max_size=4),
        slots=st.integers(1, 4),
        busy=st.integers(0, 5),
        python=st.sampled_from([PYTHON, "3.12"]),
        generation=st.sampled_from(GENERATIONS),
        draining=st.booleans(),
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
)


@given(calls, workers)
def test_only_a_live_fitting_worker_with_a_free_slot_is_chosen(call: CallHeader, fleet: list[WorkerState]) -> None:
    decision = choose(call, fleet)
    if isinstance(decision, Chosen):
        assert decision.worker in fleet
        assert decision.worker.free > 0
        assert decision.worker.announcement.python == call.python
        if decision.checkpoint_id is not None:
            assert decision.worker.catalogue is not None
            assert decision.checkpoint_id in decision.worker.catalogue.checkpoint_ids
            assert not call.options.disable_optimized_execution
        if call.options.checkpoint_id is not None:
            assert decision.checkpoint_id == call.options.checkpoint_id
    elif isinstance(decision, Nobody) and call.options.checkpoint_id is None:
        assert not any(state.free > 0 and state.announcement.python == call.python for state in fleet)


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
    idle = [WorkerState(state.announcement, state.catalogue, 0) for state in fleet]
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


def test_a_worker_that_holds_more_than_its_slots_is_full() -> None:
    assert choose(header("c"), [worker("over", slots=1, busy=3)]) == Nobody("all workers are full")
