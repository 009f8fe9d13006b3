"""``readie up``, ``status`` and ``down`` with a real Redis and a real router."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from readie.stack.processes import Process, is_alive
from tests.local_stack import LocalStack, eventually


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """One stack for the tests that leave it running."""
    stack = LocalStack(tmp_path_factory.mktemp("running") / "home")
    stack.up("--workers", "0")
    yield stack
    stack.run("down")
    stack.assert_nothing_is_left()


def test_status_shows_a_running_stack(running: LocalStack) -> None:
    status = running.status()
    assert status["state"] == "running"
    assert status["redis"]["url"] == running.state["redis_url"]
    assert status["redis"]["version"]
    assert [router["lease_seconds"] > 0 for router in status["routers"]] == [True]
    assert status["workers"] == []
    assert set(status["calls"].values()) == {0}
    assert running.run("status").returncode == 0


def test_redis_is_only_on_loopback_and_refuses_rather_than_evicts(running: LocalStack) -> None:
    redis = running.redis()
    wanted = {"bind": "127.0.0.1", "maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "everysec"}
    assert {name: redis.config_get(name)[name] for name in wanted} == wanted


def test_a_second_up_changes_nothing(running: LocalStack) -> None:
    before = running.state
    again = running.run("up", "-d", "--workers", "3")
    assert again.returncode == 0
    assert "runs in" in again.stderr
    assert running.run("up").returncode == 1
    assert running.state == before


def test_a_second_stack_lives_beside_the_first(running: LocalStack, stack: LocalStack) -> None:
    stack.up("--workers", "0")
    stack.redis().set("whose", "the second")
    assert running.redis().get("whose") is None
    assert stack.run("down").returncode == 0
    stack.assert_nothing_is_left()
    assert running.status()["state"] == "running"


def test_a_killed_router_is_started_again(running: LocalStack) -> None:
    before = {router["id"] for router in running.status()["routers"]}
    running.kill_and_await_restart("router")
    status = running.status()
    assert {router["id"] for router in status["routers"]} - before
    assert status["state"] == "running"
    assert {part["name"]: part["restarts"] for part in status["stack"]["parts"]}["router"] == 1


def test_a_killed_redis_comes_back_with_its_data_where_clients_look_for_it(running: LocalStack) -> None:
    url = running.state["redis_url"]
    running.redis().set("kept", "yes")
    running.kill_and_await_restart("redis")
    assert running.state["redis_url"] == url
    assert running.redis().get("kept") == b"yes"
    eventually(lambda: running.status()["state"] == "running", "the router has found Redis again")


def test_down_stops_everything_and_the_next_up_finds_the_data(stack: LocalStack) -> None:
    stack.up("--workers", "0")
    stack.redis().set("kept", "yes")
    done = stack.run("down")
    assert done.returncode == 0
    assert done.stdout == "Stopped router, redis.\n"
    stack.assert_nothing_is_left()
    assert stack.run("status", "--json").returncode == 3
    stack.up("--workers", "0")
    assert stack.redis().get("kept") == b"yes"


def test_down_with_nothing_running_says_so_and_succeeds(stack: LocalStack) -> None:
    done = stack.run("down")
    assert done.returncode == 0
    assert done.stdout == f"Nothing runs in {stack.home}.\n"


def test_down_after_the_supervisor_was_killed_leaves_nothing(stack: LocalStack) -> None:
    stack.up("--workers", "0")
    os.kill(stack.supervisor_pid, signal.SIGKILL)
    eventually(lambda: stack.status()["state"] == "degraded", "status sees that the supervisor is gone")
    done = stack.run("down")
    assert done.returncode == 0
    assert "The supervisor had been killed" in done.stdout
    stack.assert_nothing_is_left()


def test_up_after_the_supervisor_was_killed_replaces_what_it_left(stack: LocalStack) -> None:
    stack.up("--workers", "0")
    left = [Process.model_validate(part["process"]) for part in stack.state["parts"].values()]
    os.kill(stack.supervisor_pid, signal.SIGKILL)
    done = stack.run("up", "-d", "--workers", "0")
    assert done.returncode == 0
    assert "Stopped first what a killed supervisor had left: router, redis" in done.stderr
    assert [process for process in left if is_alive(process)] == []
    assert stack.status()["state"] == "running"


def test_a_file_whose_pids_belong_to_other_processes_by_now_kills_nobody(stack: LocalStack) -> None:
    stack.up("--workers", "0")
    text = (stack.home / "stack.json").read_text()
    pids = [stack.supervisor_pid, stack.pid("redis"), stack.pid("router")]
    stack.run("down")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        for pid in pids:
            text = text.replace(f'"pid": {pid}', f'"pid": {bystander.pid}')
        (stack.home / "stack.json").write_text(text)
        assert stack.status()["state"] == "stopped"
        done = stack.run("down")
        assert done.stdout == f"Nothing runs in {stack.home}.\n"
        assert not (stack.home / "stack.json").exists()
        assert bystander.poll() is None
        bystander.communicate(b"\n", timeout=30)
        assert bystander.returncode == 0


def start_in_foreground(stack: LocalStack) -> "subprocess.Popen[str]":
    command = stack.start("up", "--workers", "0")
    eventually(lambda: (stack.home / "stack.json").exists() and stack.state["phase"] == "running", "it runs")
    return command


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_stack_in_the_foreground_stops_with_its_command(stack: LocalStack, number: signal.Signals) -> None:
    command = start_in_foreground(stack)
    command.send_signal(number)
    output, _ = command.communicate(timeout=60)
    assert command.returncode == 0
    assert "Readie runs" in output
    assert "Stopped." in output
    stack.assert_nothing_is_left()


def test_a_stack_whose_foreground_command_is_killed_stops_by_itself(stack: LocalStack) -> None:
    command = start_in_foreground(stack)
    command.kill()
    command.communicate(timeout=60)
    eventually(lambda: not stack.processes(), "everything has stopped")
    stack.assert_nothing_is_left()


def test_down_ends_a_stack_in_the_foreground(stack: LocalStack) -> None:
    command = start_in_foreground(stack)
    assert stack.run("down").returncode == 0
    assert "Stopped." in command.communicate(timeout=60)[0]
    assert command.returncode == 0


def test_a_foreground_command_says_when_its_supervisor_was_killed(stack: LocalStack) -> None:
    command = start_in_foreground(stack)
    os.kill(stack.supervisor_pid, signal.SIGKILL)
    output, _ = command.communicate(timeout=60)
    assert command.returncode == 1
    assert "readie down" in output
    assert "Traceback" not in output


def test_a_taken_port_is_named_and_nothing_is_left_half_started(stack: LocalStack) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = stack.run("up", "-d", "--workers", "0", "--redis-port", str(port))
    assert done.returncode == 1
    assert "redis can't start" in done.stderr
    assert f"127.0.0.1:{port}" in done.stderr
    stack.assert_nothing_is_left()


def test_without_a_redis_server_up_says_how_to_get_one(stack: LocalStack) -> None:
    stack.environment["READIE_REDIS_SERVER"] = "/nowhere/redis-server"
    done = stack.run("up", "-d")
    assert done.returncode == 1
    assert "/nowhere/redis-server" in done.stderr
    stack.assert_nothing_is_left()


def test_a_home_that_cant_be_used_is_named(stack: LocalStack, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    stack.environment["READIE_HOME"] = str(tmp_path / "file")
    done = stack.run("up", "-d")
    assert done.returncode == 1
    assert str(tmp_path / "file") in done.stderr


def test_a_wrong_setting_is_named(stack: LocalStack) -> None:
    stack.environment["READIE_REDIS_URL"] = "http://127.0.0.1"
    done = stack.run("status")
    assert done.returncode == 2
    assert "redis_url must start with" in done.stderr


def test_a_damaged_file_is_an_error_of_one_line(stack: LocalStack) -> None:
    stack.home.mkdir()
    (stack.home / "stack.json").write_text("{")
    for command in (("status",), ("down",), ("up", "-d")):
        done = stack.run(*command)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
        assert "stack.json is damaged" in done.stderr
