"""A local stack with real workers: their sandboxes live and go with it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local_stack import LocalStack, eventually

pytestmark = pytest.mark.sandbox


@pytest.fixture
def stack_with_data(stack: LocalStack, data_folder: Path) -> LocalStack:
    """Return a home whose workers have a generation to serve."""
    stack.environment["READIE_DATA"] = str(data_folder)
    return stack


def sandboxes(stack: LocalStack) -> list[str]:
    return [line for line in stack.processes() if "--root=" in line]


def test_workers_are_announced_with_their_slots_and_checkpoints(stack_with_data: LocalStack) -> None:
    stack = stack_with_data
    stack.up("--workers", "2", "--slots", "3")
    status = stack.status()
    assert status["state"] == "running"
    assert [worker["name"].partition("@")[0] for worker in status["workers"]] == ["worker1", "worker2"]
    for worker in status["workers"]:
        assert worker["slots"] == 3
        assert worker["busy"] == 0
        assert worker["generation"]
        assert "checkpoint_0" in worker["checkpoints"]
    assert [worker["pid"] for worker in status["workers"]] == [stack.pid("worker1"), stack.pid("worker2")]
    eventually(lambda: sandboxes(stack), "sandboxes are made ahead")
    assert stack.run("down").returncode == 0
    stack.assert_nothing_is_left()


def test_a_killed_worker_is_started_again_and_its_sandboxes_go(stack_with_data: LocalStack) -> None:
    stack = stack_with_data
    stack.up()
    old = eventually(lambda: set(sandboxes(stack)), "sandboxes are made ahead")
    stack.kill_and_await_restart("worker1")
    assert [worker["pid"] for worker in stack.status()["workers"]] == [stack.pid("worker1")]
    eventually(lambda: not old & set(sandboxes(stack)), "the killed worker's sandboxes are gone")


def test_a_worker_outlives_its_supervisor_until_down(stack_with_data: LocalStack) -> None:
    stack = stack_with_data
    stack.up()
    eventually(lambda: sandboxes(stack), "sandboxes are made ahead")
    os.kill(stack.supervisor_pid, signal.SIGKILL)
    assert len(stack.status()["workers"]) == 1
    assert stack.run("down").returncode == 0
    stack.assert_nothing_is_left()


def test_down_removes_the_sandboxes_of_a_worker_and_a_supervisor_that_were_killed(stack_with_data: LocalStack) -> None:
    stack = stack_with_data
    stack.up()
    eventually(lambda: sandboxes(stack), "sandboxes are made ahead")
    os.kill(stack.supervisor_pid, signal.SIGKILL)
    os.kill(stack.pid("worker1"), signal.SIGKILL)
    assert stack.run("down").returncode == 0
    stack.assert_nothing_is_left()


SLEEPER = """
import readie, time
@readie.remote
def sleeps():
    time.sleep(600)
call = sleeps.spawn()
while str(call.status()) != "running":
    time.sleep(0.02)
"""


def test_a_worker_that_is_killed_in_a_call_leaves_no_sandbox_after_the_stop(stack_with_data: LocalStack) -> None:
    stack = stack_with_data
    command = stack.start("up")
    eventually(lambda: (stack.home / "stack.json").exists() and stack.state["phase"] == "running", "it runs")
    subprocess.run([sys.executable, "-c", SLEEPER], env=stack.environment, check=True, timeout=60)
    assert sandboxes(stack)
    command.send_signal(signal.SIGINT)
    eventually(lambda: "Warm shutdown" in (stack.home / "logs" / "worker1.log").read_text(), "the worker drains")
    command.send_signal(signal.SIGINT)
    command.communicate(timeout=60)
    assert "worker1 did not stop in time and was killed" in (stack.home / "logs" / "supervisor.log").read_text()
    stack.assert_nothing_is_left()


def test_without_runsc_up_says_how_to_get_it_and_leaves_nothing(stack_with_data: LocalStack) -> None:
    stack = stack_with_data
    stack.environment["READIE_RUNSC"] = "/nowhere/runsc"
    done = stack.run("up", "-d")
    assert done.returncode == 1
    assert "worker1 can't start (exit status 78)" in done.stderr
    assert "/nowhere/runsc" in done.stderr
    assert "get-runsc" in done.stderr
    stack.assert_nothing_is_left()
