"""Workers that fail in ways a test must force: a package named ``workers`` comes before the real one."""

import os
import signal
from pathlib import Path

import pytest

from tests.local_stack import LocalStack, eventually


@pytest.fixture
def worker_program(stack: LocalStack, tmp_path: Path) -> Path:
    """Return the file that ``python -m workers`` runs in this stack."""
    package = tmp_path / "instead" / "workers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    stack.environment["PYTHONPATH"] = str(package.parent)
    return package / "__main__.py"


ANNOUNCE = """
import os, sys, time
from readie.connection import connect
from readie.ledger import Ledger
from readie.protocol.announcement import Announcement

ledger = Ledger(connect(os.environ["READIE_REDIS_URL"], name="test"))
announcement = Announcement(
    name=f"{sys.argv[2]}@test", incarnation=str(os.getpid()), pid=os.getpid(), slots=1, flavor="default",
    python="3.11", runsc_version="test", generation=None, catalogue=None,
)
ledger.announce(announcement, 60)
"""


def test_a_worker_that_cannot_work_here_ends_the_start_with_its_own_words(
    stack: LocalStack, worker_program: Path
) -> None:
    worker_program.write_text("import sys; print('no runsc: get one', file=sys.stderr); sys.exit(78)")
    done = stack.run("up", "-d", "--workers", "2")
    assert done.returncode == 1
    assert "can't start (exit status 78)" in done.stderr
    assert "no runsc: get one" in done.stderr
    assert "started again" not in done.stderr
    stack.assert_nothing_is_left()


def test_a_worker_that_ends_at_once_again_and_again_is_given_up(stack: LocalStack, worker_program: Path) -> None:
    worker_program.write_text("raise SystemExit('broken')")
    done = stack.run("up", "-d")
    assert done.returncode == 1
    assert done.stderr.count("it is started again") == 3
    assert "worker1 can't start (exit status 1)" in done.stderr
    stack.assert_nothing_is_left()


def test_the_words_shown_are_of_the_last_start_alone(stack: LocalStack, worker_program: Path) -> None:
    worker_program.write_text("import sys; print('an old story'); sys.exit(78)")
    stack.run("up", "-d")
    worker_program.write_text("import sys; print('a new one'); sys.exit(78)")
    done = stack.run("up", "-d")
    assert "a new one" in done.stderr
    assert "an old story" not in done.stderr


def test_a_running_stack_outlives_a_worker_that_is_given_up(stack: LocalStack, worker_program: Path) -> None:
    worker_program.write_text(ANNOUNCE + "time.sleep(600)")
    stack.up()
    assert stack.status()["state"] == "running"
    worker_program.write_text("import sys; print('runsc is gone', file=sys.stderr); sys.exit(78)")
    os.kill(stack.pid("worker1"), signal.SIGKILL)
    eventually(lambda: stack.state["parts"]["worker1"]["failure"], "the worker is given up")
    done = stack.run("status")
    assert done.returncode == 1
    assert "runsc is gone" in done.stdout
    assert stack.status()["state"] == "degraded"
    assert stack.redis().ping()


def test_an_interrupted_start_leaves_nothing(stack: LocalStack, worker_program: Path) -> None:
    worker_program.write_text("import time; time.sleep(600)")
    command = stack.start("up", "-d")
    eventually(lambda: (stack.home / "stack.json").exists() and "worker1" in stack.state["parts"], "it starts")
    eventually(lambda: stack.pid("worker1"), "the worker is started")
    command.send_signal(signal.SIGINT)
    command.communicate(timeout=60)
    assert command.returncode == 130
    stack.assert_nothing_is_left()


def test_status_says_that_a_stack_is_starting(stack: LocalStack, worker_program: Path) -> None:
    worker_program.write_text("import time; time.sleep(600)")
    command = stack.start("up", "-d")
    eventually(lambda: (stack.home / "stack.json").exists() and stack.state["parts"].get("worker1"), "it starts")
    assert stack.status()["state"] == "starting"
    again = stack.run("up", "-d")
    assert again.returncode == 1
    assert "is starting" in again.stderr
    stack.run("down")
    command.communicate(timeout=60)
    assert command.returncode != 0


def test_a_second_interrupt_does_not_wait_for_running_calls(stack: LocalStack, worker_program: Path) -> None:
    worker_program.write_text(
        ANNOUNCE + "import signal; signal.signal(signal.SIGTERM, lambda *_: print('busy', flush=True))\n"
        "while True: time.sleep(600)"
    )
    command = stack.start("up")
    eventually(lambda: (stack.home / "stack.json").exists() and stack.state["phase"] == "running", "it runs")
    command.send_signal(signal.SIGINT)
    eventually(lambda: "busy" in (stack.home / "logs" / "worker1.log").read_text(), "the worker was asked to stop")
    command.send_signal(signal.SIGINT)
    # Without the second one it takes half a minute.
    output, _ = command.communicate(timeout=20)
    assert "Stopped." in output
    stack.assert_nothing_is_left()


def test_what_a_dead_worker_had_started_goes_with_the_stack(
    stack: LocalStack, worker_program: Path, tmp_path: Path
) -> None:
    worker_program.write_text(
        "import subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '600'], env={}, start_new_session=True)\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "sys.exit(78)"
    )
    assert stack.run("up", "-d").returncode == 1
    pid = int((tmp_path / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists()


def test_a_sandbox_of_a_killed_worker_goes_although_the_supervisor_was_killed_too(
    stack: LocalStack, worker_program: Path
) -> None:
    worker_program.write_text(
        ANNOUNCE + "import subprocess\n"
        "state = os.environ['READIE_RUN'] + '/worker1/s1/state'\n"
        "os.makedirs(state)\n"
        "subprocess.Popen([sys.executable, '-c', 'input()', '--root=' + state], env={}, stdin=subprocess.PIPE)\n"
        "time.sleep(600)"
    )
    stack.up()
    os.kill(stack.supervisor_pid, signal.SIGKILL)
    # As a sandbox it does not notice the end of its worker.
    sandbox = [line for line in stack.processes() if "--root=" in line]
    assert len(sandbox) == 1
    os.kill(stack.pid("worker1"), signal.SIGKILL)
    assert stack.run("down").returncode == 0
    stack.assert_nothing_is_left()
