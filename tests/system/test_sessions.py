"""Calls that share a sandbox: what stays from one to the next, who comes when, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import readie
from readie import (
    CallCancelledError,
    CallExpiredError,
    CallTimeoutError,
    PreconditionError,
    SandboxDiedError,
    Session,
    SessionExpiredError,
    SessionLostError,
    get_session,
    remote,
    session,
)
from readie.ledger.sessions import SessionLedger
from readie.protocol.envelope import CallState
from tests.local_stack import LocalStack, eventually

SECONDS = 60
limit = 1
notes: list[str] = []

pytestmark = pytest.mark.usefixtures("stack")


@remote
def note(text: str) -> list[str]:
    notes.append(text)
    return list(notes)


@remote
def remember(value: object) -> None:
    global remembered  # noqa: PLW0603
    remembered = value  # type: ignore[name-defined]


@remote
def recall() -> object:
    return remembered  # type: ignore[name-defined]


@remote
def sandbox() -> str:
    """Return what tells one sandbox from another: a file that its first call made."""
    import pathlib
    import uuid

    mark = pathlib.Path("/tmp/mark")
    if not mark.exists():
        mark.write_text(uuid.uuid4().hex)
    return mark.read_text()


@remote
def sleep(seconds: float) -> None:
    import time

    time.sleep(seconds)


@remote
def end_process() -> None:
    import os

    os._exit(3)


@remote
def over_limit(count: int) -> bool:
    return count > limit


@pytest.fixture
def opened() -> Iterator[Session]:
    with session() as opened:
        yield opened


def sandbox_id(opened: Session) -> str:
    call = sandbox.options(session=opened).spawn()
    call.result(SECONDS)
    found = call.report().sandbox
    assert found is not None
    return found


def records(stack: LocalStack) -> list[str]:
    redis = stack.redis()
    try:
        return [record.id for record in SessionLedger(redis).sessions()]
    finally:
        redis.close()


def running(call: readie.Call[object]) -> readie.Call[object]:
    eventually(lambda: call.status().state is CallState.RUNNING, "the call runs")
    return call


def test_calls_share_sandbox_globals_imports_and_files(opened: Session) -> None:
    remember({"rows": 3})
    assert recall() == {"rows": 3}
    assert note("a") == ["a"]
    assert note("b") == ["a", "b"]
    opened.run("import math\nopen('/tmp/kept', 'w').write('kept')")
    assert opened.run("math.floor(2.5), open('/tmp/kept').read()") == (2, "kept")
    opened.set(ratio=0.5, label="x")
    assert opened.get("ratio") == 0.5
    assert opened.run("label * 2") == "xx"
    with pytest.raises(NameError, match="no global 'absent'"):
        opened.get("absent")
    assert len({sandbox(), sandbox()}) == 1

    call = sandbox.spawn()
    assert call.result(SECONDS) == sandbox()
    report = call.report()
    assert (report.start, report.session_id, report.pool) == ("warm", opened.id, None)
    assert sum(report.phases.values()) == pytest.approx(report.total_seconds, rel=0.05, abs=0.001)


def test_what_a_call_left_before_it_raised_is_there_for_the_next(opened: Session) -> None:
    with pytest.raises(ZeroDivisionError):
        opened.run("left = 1\n1 / 0")
    assert opened.get("left") == 1


def test_objects_of_classes_made_in_a_session_can_be_used_and_pickled_there(opened: Session) -> None:
    opened.run("class Point:\n    def __init__(self, x): self.x = x\npoint = Point(3)")
    opened.run("import pickle\ncopy = pickle.loads(pickle.dumps(point))")
    assert opened.run("copy.x, isinstance(copy, Point)") == (3, True)


def test_globals_of_the_client_seed_what_is_missing_and_change_nothing(
    opened: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert over_limit(2)
    assert opened.get("limit") == 1
    monkeypatch.setitem(globals(), "limit", 5)
    with pytest.warns(UserWarning, match="has its own limit, which differs"):
        assert over_limit(2)
    call = over_limit.spawn(2)
    assert call.result(SECONDS)
    assert call.report().ignored_globals == ("limit",)
    opened.set(limit=5)
    assert not over_limit(2)


def test_outside_of_the_block_calls_have_sandboxes_of_their_own() -> None:
    with session() as outer, session() as inner:
        remember("inner")
        assert recall.options(session=inner)() == "inner"
        with pytest.raises(NameError):
            recall.options(session=outer)()
    with pytest.raises(NameError):
        recall()


def test_values_that_are_read_after_the_block_come_from_no_other_sandbox() -> None:
    @remote
    def values() -> Iterator[str]:
        yield "of another sandbox"

    with session() as opened:
        remember("inside")
        later: list[Iterator[object]] = [values(), recall.starmap([()])]
    for each in later:
        with pytest.raises(SessionExpiredError, match=opened.id):
            next(each)


def test_tasks_started_inside_are_in_the_session_and_threads_are_not() -> None:
    async def main() -> tuple[str, list[str], str]:
        async with session() as opened:
            first = await sandbox.aio()
            tasks = await asyncio.gather(*(sandbox.aio() for _ in range(3)))
            await opened.aset(value=1)
            assert await opened.aget("value") == await opened.arun("value") == 1
            found: list[str] = []
            thread = threading.Thread(target=lambda: found.append(sandbox()))
            thread.start()
            await asyncio.to_thread(thread.join)
        return first, tasks, found[0]

    first, tasks, of_thread = asyncio.run(main())
    assert set(tasks) == {first}
    assert of_thread != first


def test_callers_who_open_a_session_at_once_get_one_sandbox_in_their_order() -> None:
    with session("raced") as opened, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: sandbox.options(session=session("raced"))(), range(8)))
        assert len(set(found)) == 1
        calls = [note.options(session=opened).spawn(str(number)) for number in range(20)]
        assert calls[-1].result(SECONDS) == [str(number) for number in range(20)]


def test_another_process_attaches_by_id_and_does_not_close(opened: Session, stack: LocalStack) -> None:
    remember(5)
    source = (
        f"import readie\nwith readie.get_session({opened.id!r}) as s:\n    s.set(remembered=s.get('remembered') + 1)\n"
    )
    environment = {**os.environ, "READIE_REDIS_URL": stack.redis_url}
    subprocess.run([sys.executable, "-c", source], env=environment, check=True, timeout=SECONDS)
    assert recall() == 6


def test_a_session_that_never_was_is_not_opened_by_attaching() -> None:
    with pytest.raises(SessionExpiredError, match="no session nobody-opened-it"):
        get_session("nobody-opened-it").run("1")


def test_waiting_calls_can_be_cancelled_and_expire(opened: Session) -> None:
    remember(0)
    slow = running(sleep.spawn(2))
    cancelled, expiring = note.spawn("cancelled"), note.options(expires=0.1).spawn("expired")
    last = note.spawn("last")
    assert cancelled.cancel()
    with pytest.raises(CallCancelledError):
        cancelled.result(SECONDS)
    with pytest.raises(CallExpiredError):
        expiring.result(SECONDS)
    assert slow.status().state is CallState.RUNNING
    assert last.result(SECONDS) == ["last"]
    assert recall() == 0


def test_when_the_opener_is_cancelled_the_next_call_opens(stack: LocalStack) -> None:
    others = [running(sleep.spawn(3600)) for _ in range(4)]
    with session() as opened:
        # No slot is free, so that the first waits for its place.
        calls = [note.options(session=opened).spawn(str(number)) for number in range(3)]
        eventually(lambda: calls[0].status().state is CallState.QUEUED, "it waits")
        assert calls[0].cancel()
        for other in others:
            other.cancel()
        assert calls[2].result(SECONDS) == ["1", "2"]


def test_pins_opt_outs_and_gpus_are_held_against_the_sandbox_that_is_there() -> None:
    with session(checkpoint_id="checkpoint_0"):
        call = sandbox.spawn()
        call.result(SECONDS)
        assert (call.report().start, call.report().checkpoint_id) == ("restored", "checkpoint_0")
        assert sandbox.options(checkpoint_id="checkpoint_0")() == sandbox()
        with pytest.raises(PreconditionError, match="restored from checkpoint_0"):
            sandbox.options(checkpoint_id="checkpoint_1")()
    with session():
        sandbox.options(checkpoint_id="checkpoint_0")()
        with pytest.raises(PreconditionError, match="restored from checkpoint_0"):
            sandbox.options(disable_optimized_execution=True)()
        with pytest.raises(PreconditionError, match="without a GPU"):
            sandbox.options(gpu=True)()
        assert note("goes on") == ["goes on"]
    with session(disable_optimized_execution=True):
        sandbox()
        assert sandbox.options(disable_optimized_execution=True)() == sandbox()
        with pytest.raises(PreconditionError):
            sandbox.options(checkpoint_id="checkpoint_0")()


def test_closing_ends_what_runs_and_waits_and_says_so_afterwards(stack: LocalStack) -> None:
    opened = session()
    name = sandbox_id(opened)
    assert any(name in process for process in stack.processes())
    slow, waiting = (running(sleep.options(session=opened).spawn(1000)), sandbox.options(session=opened).spawn())
    began = time.monotonic()
    assert opened.close()
    eventually(lambda: not any(name in process for process in stack.processes()), "its sandbox is gone")
    assert time.monotonic() - began < 5
    for ended in (slow, waiting):
        with pytest.raises(SessionExpiredError, match="was closed"):
            ended.result(SECONDS)
    with pytest.raises(SessionExpiredError, match="was closed"):
        sandbox.options(session=opened)()
    assert not opened.close()
    assert opened.id not in records(stack)


def test_an_idle_session_expires(stack: LocalStack) -> None:
    opened = session(idle_ttl=0.2)
    name = sandbox_id(opened)
    eventually(lambda: opened.id not in records(stack), "it has expired")
    eventually(lambda: not any(name in process for process in stack.processes()), "its sandbox is gone")
    with pytest.raises(SessionExpiredError, match=r"idle for 0\.2 s"):
        sandbox.options(session=opened)()


@pytest.mark.parametrize("how", ["dies", "timeout", "cancel"])
def test_a_lost_sandbox_is_never_replaced_in_silence(how: str) -> None:
    opened = session()
    remember.options(session=opened)(1)
    waiting = None
    if how == "dies":
        with pytest.raises(SandboxDiedError):
            end_process.options(session=opened)()
    elif how == "timeout":
        with pytest.raises(CallTimeoutError):
            sleep.options(session=opened, timeout=0.2)(1000)
    else:
        call = running(sleep.options(session=opened).spawn(1000))
        waiting = recall.options(session=opened).spawn()
        call.cancel()
        with pytest.raises(CallCancelledError):
            call.result(SECONDS)
    if waiting is not None:
        with pytest.raises(SessionLostError):
            waiting.result(SECONDS)
    for handle in (opened, session(opened.id), get_session(opened.id)):
        with pytest.raises(SessionLostError, match="was lost"):
            recall.options(session=handle)()


def test_an_idle_sandbox_that_dies_is_noticed(stack: LocalStack) -> None:
    opened = session()
    name = sandbox_id(opened)
    for pid in sandbox_processes(name):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: opened.id not in records(stack), "the session is lost")
    with pytest.raises(SessionLostError, match="its sandbox died"):
        sandbox.options(session=opened)()


def is_paused(name: str) -> bool:
    states = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in sandbox_processes(name)]
    return "T" in states


def test_a_sandbox_is_paused_while_its_session_idles(opened: Session) -> None:
    name = sandbox_id(opened)
    remember.options(session=opened)("before")
    for _ in range(2):
        eventually(lambda: is_paused(name), "it is paused")
        assert recall.options(session=opened)() == "before"
        assert not is_paused(name)
        assert sandbox_id(opened) == name


@remote
def begin(how: str) -> None:
    import pathlib
    import signal
    import subprocess
    import threading
    import time

    def count() -> None:
        for number in range(10_000):
            pathlib.Path("/tmp/next").write_text(str(number))
            pathlib.Path("/tmp/next").rename("/tmp/count")
            time.sleep(0.01)

    if how == "thread":
        threading.Thread(target=count, daemon=True).start()
    elif how == "child":
        script = (
            "i=0; while [ $i -lt 10000 ]; do i=$((i+1)); echo $i > /tmp/next; mv /tmp/next /tmp/count; sleep 0.01; done"
        )
        subprocess.Popen(["/bin/sh", "-c", script])
    else:
        numbers = iter(range(10_000))
        signal.signal(signal.SIGALRM, lambda *_: pathlib.Path("/tmp/count").write_text(str(next(numbers))))
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)


@remote
def counted() -> int:
    import pathlib

    return int(pathlib.Path("/tmp/count").read_text())


@pytest.mark.parametrize("how", ["thread", "child", "timer"])
def test_what_a_call_began_goes_on_between_calls(opened: Session, how: str) -> None:
    name = sandbox_id(opened)
    begin.options(session=opened)(how)
    time.sleep(4)
    assert not is_paused(name)
    assert counted.options(session=opened)() > 50


def sandbox_processes(name: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if name.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def test_restart_on_loss_starts_afresh_and_says_so() -> None:
    with session(restart_on_loss=True) as opened:
        remember(1)
        with pytest.raises(SandboxDiedError):
            end_process()
        call = opened_names.spawn()
        assert "remembered" not in call.result(SECONDS)
        restarted = call.report().restarted
        assert restarted is not None
        assert "ended its sandbox" in restarted
        assert recall.options(session=opened).spawn().report(SECONDS).restarted is None


@remote
def opened_names() -> list[str]:
    return sorted(globals())


def test_nothing_is_left_of_ended_sessions(stack: LocalStack) -> None:
    redis = stack.redis()
    for _ in range(3):
        with session():
            sandbox()
    eventually(lambda: records(stack) == [], "no session is open")
    assert list(redis.scan_iter("readie:worker*session*")) == []
    assert list(redis.scan_iter("readie:session-calls:*")) == []
    assert all(0 < redis.ttl(key) <= 3600 for key in redis.scan_iter("readie:session:*"))
    redis.close()
