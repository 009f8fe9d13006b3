import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from readie.stack import logs
from readie.stack.processes import Process, identify, is_alive, send, wait_gone
from readie.stack.programs import find_redis_server, free_port
from readie.stack.state import StackError, owning


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def identity(child: "subprocess.Popen[bytes]") -> Process:
    process = identify(child.pid)
    assert process is not None
    return process


def test_a_later_process_with_the_same_pid_is_not_signalled(child: "subprocess.Popen[bytes]") -> None:
    earlier = identity(child).model_copy(update={"start": "another boot/1"})
    assert not is_alive(earlier)
    assert not send(earlier, signal.SIGKILL)
    assert child.poll() is None


def test_the_process_itself_is_signalled_and_its_end_seen(child: "subprocess.Popen[bytes]") -> None:
    process = identity(child)
    assert wait_gone([process], 0) == [process]
    assert send(process, signal.SIGKILL)
    # Not waited for by its parent yet, it is a zombie; that counts as gone.
    assert wait_gone([process], 30) == []
    assert Path(f"/proc/{child.pid}").exists()
    assert not send(process, signal.SIGKILL)


def test_a_chosen_port_is_free_and_never_given_to_an_outgoing_connection() -> None:
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = {free_port() for _ in range(20)}
    assert max(ports) < first_outgoing
    assert len(ports) > 1
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", ports.pop()))


def test_a_home_has_one_owner_at_a_time(tmp_path: Path) -> None:
    with owning(tmp_path) as first, owning(tmp_path) as second:
        assert (first, second) == (True, False)
    with owning(tmp_path) as again:
        assert again


def fake_server(folder: Path, answer: str) -> Path:
    program = folder / "redis-server"
    program.write_text(f"#!/bin/sh\necho '{answer}'\n")
    program.chmod(0o755)
    return program


def test_a_redis_that_is_too_old_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"Redis 5\.0; Redis 6\.2 or newer is needed"):
        find_redis_server(fake_server(tmp_path, "Redis server v=5.0.3 sha=0"))


def test_a_program_that_is_no_redis_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="not a Redis server"):
        find_redis_server(fake_server(tmp_path, "hello"))


def test_the_server_on_path_is_found_when_none_is_beside_this_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = fake_server(tmp_path, "Redis server v=7.0.15 sha=0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "elsewhere" / "python"))
    assert find_redis_server(None) == program
    program.unlink()
    with pytest.raises(StackError, match="READIE_REDIS_SERVER"):
        find_redis_server(None)


def test_a_log_that_grows_too_long_is_emptied_under_its_writer(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    with log.open("a") as writer:
        writer.write("old\n" * 100)
        writer.flush()
        logs.bound(log, limit_bytes=1000)
        assert log.stat().st_size == 400
        logs.bound(log, limit_bytes=100)
        writer.write("new\n")
        writer.flush()
    assert log.read_text() == "new\n"
    assert (tmp_path / "part.log.1").read_text() == "old\n" * 100


def test_the_tail_of_a_log_begins_where_asked(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    log.write_text("before\n")
    since = logs.size(log)
    assert logs.tail(log, since) == ""
    with log.open("ab") as writer:
        writer.write(b"after \xff\n\n")
    assert logs.tail(log, since) == "after \N{REPLACEMENT CHARACTER}"
    assert logs.tail(tmp_path / "missing.log") == ""
