"""A call can be taken back at any moment, whatever it does."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery
from celery.result import AsyncResult

import readie
from readie import CallCancelledError, RemoteFunction, remote
from readie.protocol.envelope import CallState
from tests.local_stack import LocalStack, eventually

SECONDS = 60

pytestmark = pytest.mark.usefixtures("stack")


@remote
def sleep_in_c() -> None:
    import time

    time.sleep(1000)


@remote
def compute_in_c() -> int:
    return int(pow(3, 10**9))


@remote
def ignore_every_signal() -> None:
    import contextlib
    import signal

    for number in range(1, 65):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    while True:
        pass


@remote
def answer() -> int:
    return 42


def running(call: readie.Call[Any]) -> readie.Call[Any]:
    """Return the call once its function runs."""
    eventually(lambda: call.status().state is CallState.RUNNING, "the call runs")
    return call


@pytest.mark.parametrize("function", [sleep_in_c, compute_in_c, ignore_every_signal], ids=lambda f: f.__name__)
def test_a_running_call_is_stopped(function: RemoteFunction[..., Any]) -> None:
    call = running(function.spawn())
    assert call.cancel()
    with pytest.raises(CallCancelledError):
        call.result(timeout=SECONDS)

    assert call.status().state is CallState.CANCELLED
    assert call.report().worker is not None
    assert not call.cancel(), "it has ended"
    assert answer() == 42


def test_a_call_that_is_cancelled_while_its_sandbox_starts_does_not_begin(stack: LocalStack) -> None:
    for _ in range(5):
        call = answer.options(disable_optimized_execution=True).spawn()
        eventually(lambda call=call: call.status().state is not CallState.QUEUED, "it is on its way")
        if call.cancel():
            with pytest.raises(CallCancelledError):
                call.result(timeout=SECONDS)
        else:
            assert call.result(timeout=SECONDS) == 42
    assert answer() == 42


def test_a_waiting_call_is_taken_back_at_once_and_never_begins(stack: LocalStack) -> None:
    holding = [running(sleep_in_c.spawn()) for _ in range(4)]
    waiting = answer.spawn()
    follower = answer.spawn()
    eventually(lambda: "full" in str(waiting.status()), "no slot is free")
    assert waiting.cancel()
    with pytest.raises(CallCancelledError):
        waiting.result(timeout=SECONDS)
    assert waiting.report().attempt == 0
    assert follower.status().state is CallState.QUEUED

    assert holding[0].cancel(), "its slot is what the follower waits for"
    assert follower.result(timeout=SECONDS) == 42
    for call in holding:
        call.cancel()
        with pytest.raises(CallCancelledError):
            call.result(timeout=SECONDS)


def test_a_call_that_has_ended_stays_as_it_ended() -> None:
    call = answer.spawn()
    assert call.result(timeout=SECONDS) == 42
    assert not call.cancel()
    assert call.status().state is CallState.DONE
    assert readie.get_call(call.id).result(timeout=SECONDS) == 42


def test_whoever_was_told_that_a_call_is_cancelled_was_told_the_truth() -> None:
    """Calls that end by themselves at about the time they are cancelled."""
    cancelled = 0
    for _ in range(20):
        call = answer.spawn()
        eventually(lambda call=call: call.status().state is not CallState.PLACED, "it has begun")
        if call.cancel():
            cancelled += 1
            with pytest.raises(CallCancelledError):
                call.result(timeout=SECONDS)
        else:
            assert call.result(timeout=SECONDS) == 42
    assert cancelled


def test_any_process_can_cancel_a_call() -> None:
    call = running(sleep_in_c.spawn())
    assert readie.get_call(call.id).cancel()
    with pytest.raises(CallCancelledError):
        call.result(timeout=SECONDS)


def test_a_word_that_the_worker_missed_is_made_up_for(stack: LocalStack) -> None:
    call = running(sleep_in_c.spawn())
    redis = stack.redis()
    (listener,) = [
        client["id"]
        for client in redis.client_list(_type="pubsub")
        if client["name"].startswith("readie-worker1@") and client["sub"] == "1"
    ]
    redis.client_kill_filter(_id=listener)
    assert call.cancel()
    with pytest.raises(CallCancelledError):
        call.result(timeout=SECONDS)
    redis.close()


def test_celerys_revoke_with_terminate_cancels_what_runs(stack: LocalStack) -> None:
    """It is also what Flower's button sends."""
    call = running(sleep_in_c.spawn())
    app = Celery("other", broker=stack.redis_url, backend=stack.redis_url)
    app.control.revoke(call.id, terminate=True)
    with pytest.raises(CallCancelledError):
        call.result(timeout=SECONDS)

    assert AsyncResult(call.id, app=app).state == "REVOKED"
    assert call.status().state is CallState.CANCELLED


def test_celerys_revoke_alone_cancels_what_has_not_begun(stack: LocalStack) -> None:
    app = Celery("other", broker=stack.redis_url, backend=stack.redis_url)
    holding = [running(sleep_in_c.spawn()) for _ in range(4)]
    waiting = answer.spawn()
    eventually(lambda: "full" in str(waiting.status()), "no slot is free")
    replies = app.control.revoke([waiting.id, holding[0].id, "no-such-call"], reply=True, timeout=20, limit=1)
    with pytest.raises(CallCancelledError):
        waiting.result(timeout=SECONDS)

    (reply,) = replies[0].values()
    assert reply["ok"] == f"{waiting.id}: cancelled, {holding[0].id}: running, no-such-call: ended"
    assert AsyncResult(holding[0].id, app=app).state == "PENDING", "no result is put over the one to come"
    for call in holding:
        assert call.cancel()
        with pytest.raises(CallCancelledError):
            call.result(timeout=SECONDS)
