from hypothesis import given
from hypothesis import strategies as st

from readie.stack.restart import (
    CANNOT_START,
    LONGEST_DELAY_SECONDS,
    MOST_QUICK_ENDS,
    STABLE_SECONDS,
    Restart,
    after_end,
)

EXIT_CODES = st.integers(-64, 255).filter(lambda code: code != CANNOT_START)


@given(ready=st.none() | st.floats(0, 1e6), quick_ends=st.integers(0, 50), has_redis=st.booleans())
def test_a_part_that_cannot_start_here_is_not_tried_again(
    ready: float | None, quick_ends: int, has_redis: bool
) -> None:
    assert after_end(CANNOT_START, ready_seconds=ready, quick_ends=quick_ends, has_redis=has_redis) is None


@given(exit_code=EXIT_CODES)
def test_a_part_that_never_works_is_given_up_after_a_few_tries_with_growing_pauses(exit_code: int) -> None:
    delays = []
    quick_ends = 0
    while decision := after_end(exit_code, ready_seconds=None, quick_ends=quick_ends, has_redis=True):
        delays.append(decision.delay_seconds)
        quick_ends = decision.quick_ends
    assert len(delays) == MOST_QUICK_ENDS - 1
    assert delays == sorted(set(delays))


@given(exit_code=EXIT_CODES, ready=st.floats(0, 1e6), quick_ends=st.integers(0, 50))
def test_a_part_that_worked_is_always_started_again_soon(exit_code: int, ready: float, quick_ends: int) -> None:
    decision = after_end(exit_code, ready_seconds=ready, quick_ends=quick_ends, has_redis=True)
    assert decision is not None
    assert 0 < decision.delay_seconds <= LONGEST_DELAY_SECONDS


@given(exit_code=EXIT_CODES, quick_ends=st.integers(0, 50))
def test_a_part_that_worked_long_starts_with_a_clean_slate(exit_code: int, quick_ends: int) -> None:
    decision = after_end(exit_code, ready_seconds=STABLE_SECONDS, quick_ends=quick_ends, has_redis=True)
    assert decision == after_end(exit_code, ready_seconds=None, quick_ends=0, has_redis=True)


@given(exit_code=EXIT_CODES, ready=st.none() | st.floats(0, 1e6), quick_ends=st.integers(0, 50))
def test_an_end_while_redis_is_away_does_not_count(exit_code: int, ready: float | None, quick_ends: int) -> None:
    decision = after_end(exit_code, ready_seconds=ready, quick_ends=quick_ends, has_redis=False)
    assert isinstance(decision, Restart)
    assert decision.quick_ends == quick_ends
