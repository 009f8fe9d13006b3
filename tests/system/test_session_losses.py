"""Sessions when something is killed in the middle of them: a worker, the router, Redis; and many at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery

import readie
from readie import SessionExpiredError, SessionLostError, get_session, remote, session
from readie.ledger.sessions import SessionLedger
from readie.protocol.envelope import CallState
from readie.protocol.session import SessionRecord
from tests.conftest import ROOT
from tests.local_stack import LocalStack, eventually

SECONDS = 60
noted: list[int] = []


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory, data_folder: Path) -> Iterator[LocalStack]:
    """A stack with two workers that keep many small sessions, which this process's default client uses."""
    stack = LocalStack(tmp_path_factory.mktemp("home"))
    stack.environment |= {
        "READIE_DATA": str(data_folder),
        "READIE_SANDBOX_MEMORY_BYTES": str(256 << 20),
        "READIE_MEMORY_BYTES": str(12 << 30),
        "READIE_LEASE_SECONDS": "4",
        "READIE_SESSION_DRAIN_SECONDS": "30",
    }
    stack.up("--workers", "2", "--slots", "2")
    readie.configure(redis_url=stack.redis_url)
    yield stack
    stack.down()


@pytest.fixture(autouse=True)
def _default_client(two_workers: LocalStack) -> None:
    readie.configure(redis_url=two_workers.redis_url)


@remote
def note(number: int) -> list[int]:
    noted.append(number)
    return list(noted)


@remote
def sleep(seconds: float) -> None:
    import time

    time.sleep(seconds)


def records(stack: LocalStack) -> dict[str, SessionRecord]:
    redis = stack.redis()
    try:
        return {record.id: record for record in SessionLedger(redis).sessions()}
    finally:
        redis.close()


def running(call: readie.Call[object]) -> readie.Call[object]:
    eventually(lambda: call.status().state is CallState.RUNNING, "the call runs")
    return call


@pytest.mark.filterwarnings("ignore:session .* has its own")
def test_a_killed_router_loses_no_call(two_workers: LocalStack) -> None:
    with session() as opened:
        note(0)
        calls = []
        for number in range(1, 41):
            calls.append(note.spawn(number))
            if number == 20:
                os.kill(two_workers.pid("router"), signal.SIGKILL)
        for call in calls:
            call.result(SECONDS)
        assert sorted(opened.get("noted")) == list(range(41))


@pytest.mark.filterwarnings("ignore:session .* has its own")
def test_a_session_outlives_a_redis_that_is_killed_and_comes_back(two_workers: LocalStack) -> None:
    redis = two_workers.redis()
    redis.config_set("appendfsync", "always")
    with session() as opened:
        note(1)
        before = records(two_workers)[opened.id]
        two_workers.kill_and_await_restart("redis")
        assert note.spawn(2).result(SECONDS) == [1, 2]
        assert records(two_workers)[opened.id].sandbox == before.sandbox
    redis.close()


def test_a_draining_worker_keeps_its_sessions_and_takes_no_others(two_workers: LocalStack) -> None:
    opened = session()
    note.options(session=opened)(1)
    owner = records(two_workers)[opened.id].worker
    part = owner.partition("@")[0]
    pid = two_workers.pid(part)
    os.kill(pid, signal.SIGTERM)
    redis = two_workers.redis()
    eventually(lambda: b'"draining":true' in (redis.hget(f"readie:worker:{owner}", "announcement") or b""), "it drains")
    with session():
        note(7)
        assert {record.worker for record in records(two_workers).values()} > {owner}
    with pytest.warns(UserWarning, match="noted"):
        assert note.options(session=opened)(2) == [1, 2]
    opened.close()
    eventually(lambda: two_workers.pid(part) not in {0, pid} and two_workers.state["parts"][part]["ready"], "it went")
    redis.close()


def test_a_killed_worker_takes_its_sessions_along_and_says_so(two_workers: LocalStack) -> None:
    busy = {opened: running(sleep.options(session=opened).spawn(1000)) for opened in (session(), session())}
    spared = session()
    note.options(session=spared)(1)
    owners = {record.id: record.worker for record in records(two_workers).values()}
    # Of two slots on each worker two are taken: whatever the placement, one of the busy ones is elsewhere.
    lost = next(opened for opened in busy if owners[opened.id] != owners[spared.id])
    waiting = note.options(session=lost).spawn(1)
    os.kill(two_workers.pid(owners[lost.id].partition("@")[0]), signal.SIGKILL)
    for call in (busy[lost], waiting):
        with pytest.raises(SessionLostError):
            call.result(SECONDS)
    for handle in (lost, get_session(lost.id)):
        with pytest.raises(SessionLostError, match="was lost"):
            note.options(session=handle)(2)
    with pytest.warns(UserWarning, match="noted"):
        assert note.options(session=spared).spawn(1).result(SECONDS) == [1, 1]
    for opened in (spared, *busy):
        opened.close()
    restarted = session(lost.id, restart_on_loss=True)
    call = note.options(session=restarted).spawn(3)
    assert call.result(SECONDS) == [3]
    assert call.report().restarted
    restarted.close()


def test_the_command_lists_and_closes_sessions(two_workers: LocalStack) -> None:
    opened = session("shown", idle_ttl=1234)
    note.options(session=opened)(1)
    listed = two_workers.run("sessions")
    assert "shown" in listed.stdout
    assert "1234 s" in listed.stdout
    as_json = two_workers.run("sessions", "--json")
    assert '"id": "shown"' in as_json.stdout
    closed = two_workers.run("sessions", "close", "shown")
    assert (closed.returncode, closed.stdout.strip()) == (0, "Closed session shown.")
    with pytest.raises(SessionExpiredError, match="closed by `readie sessions close`"):
        note.options(session=opened)(1)
    again = two_workers.run("sessions", "close", "shown")
    assert (again.returncode, again.stderr.strip()) == (
        1,
        "readie: no session shown is open; `readie sessions` lists those that are",
    )
    assert "No open sessions." in two_workers.run("sessions").stdout


def test_many_clients_open_use_and_close_many_sessions(two_workers: LocalStack) -> None:
    done = subprocess.run(
        [
            sys.executable,
            ROOT / "benchmarks" / "many_sessions.py",
            "--redis-url",
            two_workers.redis_url,
            "--sessions",
            "60",
        ],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "60 sessions" in done.stdout
    eventually(
        lambda: sum("--root" in process for process in two_workers.processes()) < 40,
        "the closed sessions' sandboxes go",
    )


def test_celery_shows_the_calls_of_sessions(two_workers: LocalStack) -> None:
    app = Celery("other", broker=two_workers.redis_url, backend=two_workers.redis_url)
    with session() as opened:
        opened.get("__name__")
        with app.connection_for_read() as connection:
            seen: list[tuple[str, str]] = []
            receiver = app.events.Receiver(
                connection, handlers={"*": lambda event: seen.append((event["type"], event.get("uuid", "")))}
            )
            capturing = receiver.itercapture(timeout=SECONDS, wakeup=True)
            next(capturing)
            call = running(sleep.spawn(1000))
            shown = [one["id"] for calls in app.control.inspect(timeout=5).active().values() for one in calls]
            assert shown == [call.id]
            call.cancel()
            wanted = {(kind, call.id) for kind in ("task-received", "task-started", "task-revoked")}
            while not wanted <= set(seen):
                next(capturing)
