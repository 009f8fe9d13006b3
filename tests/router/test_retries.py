"""A call that had begun and failed runs again when its caller allowed that, and only then."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis
from router_cluster import Client, Worker, header, uncollected

from readie.failures import retry_after
from readie.ledger.sessions import SessionLedger
from readie.protocol import keys
from readie.protocol.call import CallHeader, RetryPolicy
from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import CallState, Failure
from readie.retries import Retries
from router.recovery import Recovery

NewWorker = Callable[..., Worker]


@pytest.fixture
def recovery(redis: Redis) -> Recovery:
    return Recovery(SessionLedger(redis), keep_seconds=60, metrics=uncollected())


def with_retries(call_id: str, retries: Retries) -> CallHeader:
    call = header(call_id)
    return call.model_copy(update={"options": call.options.model_copy(update={"retries": retries.policy()})})


def lose(worker: Worker, recovery: Recovery) -> None:
    """Let a worker that has begun a call vanish, and a router notice."""
    worker.begin()
    worker.vanish()
    recovery.sweep_workers()


def test_a_call_lost_with_its_worker_runs_again_as_often_as_its_retries_allow(
    client: Client, new_worker: NewWorker, recovery: Recovery
) -> None:
    call = with_retries("c", Retries(2))
    worker = new_worker().announce()
    worker.give(call)
    for attempt in (2, 3):
        lose(worker, recovery)
        assert client.field("c", "state") == "queued"
        assert f"retry {attempt - 1} of 2 after WorkerLostError" in client.ledger.state("c")[1]
        worker = new_worker(f"worker{attempt}@test").announce()
        worker.place(call, attempt)
    lose(worker, recovery)
    end = client.end("c")
    assert end.failure is not None
    assert (end.failure.code, end.report.attempt) == (ErrorCode.WORKER_LOST, 3)


def test_without_retries_or_after_another_error_it_does_not(
    client: Client, new_worker: NewWorker, recovery: Recovery
) -> None:
    for number, call in enumerate([header("plain"), with_retries("other", Retries(2, after=(ValueError,)))]):
        worker = new_worker(f"worker{number}@test").announce()
        worker.give(call)
        lose(worker, recovery)
        assert client.end(call.id).state is CallState.FAILED


@pytest.mark.usefixtures("router")
def test_a_delayed_retry_waits_its_time_and_is_placed_then(client: Client, new_worker: NewWorker, redis: Redis) -> None:
    worker = new_worker().announce()
    call = with_retries("c", Retries(1, delay=0.3))
    client.submit(call)
    begun = worker.begin()
    assert worker.ledger.retry("c", 1, 0.3, "retry 1 of 1 after ValueError: no")
    assert not worker.finish(begun), "the attempt that failed has no say any more"
    assert redis.zcard(keys.worker_calls(worker.name)) == 0, "its slot is free while it waits"
    failed_at = worker.ledger.now()
    again = worker.begin()
    assert worker.ledger.now() - failed_at >= 0.25
    assert again.placement is not None
    assert again.placement.attempt == 2
    assert worker.finish(again)
    assert not redis.exists(keys.DELAYED)


def test_a_delayed_retry_is_not_taken_for_a_lost_message(client: Client, new_worker: NewWorker, redis: Redis) -> None:
    worker = new_worker().announce()
    worker.give(header("c"))
    worker.begin()
    assert worker.ledger.retry("c", 1, 1000, "later")
    redis.zadd(keys.PENDING, {"c": 1_000_000_000})
    assert worker.ledger.readmit("0", 15, 100)[1] == []


def test_a_call_that_waits_for_its_retry_can_be_cancelled(client: Client, new_worker: NewWorker, redis: Redis) -> None:
    worker = new_worker().announce()
    worker.give(header("c"))
    worker.begin()
    assert worker.ledger.retry("c", 1, 1000, "later")
    client.ledger.cancel("c")
    assert client.end("c").state is CallState.CANCELLED
    assert not redis.exists(keys.DELAYED)


def test_a_call_that_was_cancelled_while_it_ran_is_not_run_again(client: Client, new_worker: NewWorker) -> None:
    worker = new_worker().announce()
    worker.give(header("c"))
    call = worker.begin()
    client.ledger.cancel("c")
    assert not worker.ledger.retry("c", 1, 0, "no")
    assert worker.finish(call)
    assert client.end("c").state is CallState.CANCELLED


def test_a_stale_attempt_can_not_cause_a_retry(client: Client, new_worker: NewWorker) -> None:
    worker = new_worker().announce()
    worker.give(header("c"))
    worker.begin()
    assert not worker.ledger.retry("c", 7, 0, "no")
    assert worker.ledger.retry("c", 1, 0, "yes")
    assert worker.ledger.retry("c", 1, 0, "yes"), "sent again, as its answer was lost"
    assert not worker.ledger.retry("c", 1, 0, "another")
    assert client.redis.llen(keys.SUBMIT_QUEUE) == 1


def test_which_errors_allow_a_retry() -> None:
    raised = Failure(
        code=ErrorCode.REMOTE,
        message="no",
        type="builtins.ConnectionResetError",
        bases=("builtins.ConnectionResetError", "builtins.ConnectionError", "builtins.OSError"),
    )
    for after, runs_again in [((ConnectionError,), True), ((OSError, KeyError), True), ((KeyError,), False)]:
        assert bool(retry_after(Retries(1, after=after).policy(), 1, raised)) is runs_again
    for code in (ErrorCode.TIMEOUT, ErrorCode.SANDBOX_DIED, ErrorCode.MEMORY_LIMIT, ErrorCode.WORKER_LOST):
        assert retry_after(Retries(1).policy(), 1, Failure(code=code, message=""))
    for code in (ErrorCode.CANCELLED, ErrorCode.INVALID_REQUEST, ErrorCode.EXPIRED):
        assert retry_after(Retries(1).policy(), 1, Failure(code=code, message="")) is None
    assert retry_after(None, 1, raised) is None


@given(delay=st.floats(0, 1e6), factor=st.floats(1, 100), longest=st.floats(0, 1e6), times=st.integers(0, 1000))
def test_waits_grow_up_to_the_longest(delay: float, factor: float, longest: float, times: int) -> None:
    policy = RetryPolicy(times=times, after=("x",), delay_seconds=delay, factor=factor, longest_delay_seconds=longest)
    waits = [policy.delay_after(begun, ["x"]) for begun in range(1, times + 1)]
    assert policy.delay_after(times + 1, ["x"]) is None
    assert None not in waits
    known = [wait for wait in waits if wait is not None]
    assert known == sorted(known)
    assert all(wait <= longest for wait in known)
