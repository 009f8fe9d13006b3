"""One sandbox at a time, with the real runsc."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workers.executor.imports import import_modules
from workers.sandbox.connection import ConnectionLostError
from workers.sandbox.host import SandboxHost
from workers.sandbox.processes import kill_processes_under, processes_under
from workers.sandbox.sandbox import Sandbox, SandboxFailedError

SECONDS = 60.0
RunCall = Callable[..., Any]

pytestmark = pytest.mark.sandbox


def test_a_cold_start_runs_calls(sandbox: Sandbox, run_call: RunCall) -> None:
    sandbox.start(timeout=SECONDS)
    connection = sandbox.wait_ready(timeout=SECONDS)

    assert connection.hello.start == "started"
    assert run_call(connection, lambda a, b: a + b, 40, 2) == 42
    assert set(sandbox.phases) == {"create_seconds", "start_seconds", "connect_seconds"}


def test_a_restored_sandbox_has_its_modules_already(sandbox: Sandbox, images: Path, run_call: RunCall) -> None:
    sandbox.restore(images / "numpy", timeout=SECONDS)
    connection = sandbox.wait_ready(timeout=SECONDS)

    def function() -> Any:
        import sys

        loaded = "numpy" in sys.modules
        import numpy

        return loaded, numpy.arange(1_000_000)

    loaded, array = run_call_without_numpy(run_call, connection, function)
    assert connection.hello.start == "restored"
    assert "numpy" in connection.hello.imported
    assert loaded
    assert array == 499999500000
    assert set(sandbox.phases) == {"create_seconds", "restore_seconds", "connect_seconds"}


def run_call_without_numpy(run_call: RunCall, connection: Any, function: Callable[[], Any]) -> Any:
    """This test process has no numpy to unpickle an array with."""

    def summed() -> Any:
        loaded, array = function()
        return loaded, int(array.sum())

    return run_call(connection, summed)


def test_an_image_restores_after_its_own_sandbox_is_gone_and_more_than_once(
    host: SandboxHost, images: Path, run_call: RunCall
) -> None:
    for _ in range(3):
        sandbox = host.take()
        sandbox.restore(images / "empty", timeout=SECONDS)
        assert run_call(sandbox.wait_ready(timeout=SECONDS), lambda: "here") == "here"
        host.discard(sandbox)


def test_the_import_report_tells_what_each_module_took(sandbox: Sandbox) -> None:
    sandbox.start(timeout=SECONDS, imports=["numpy", "no_such_module"])
    report = sandbox.wait_imported(timeout=SECONDS)

    assert report.imported == ["numpy"]
    assert list(report.failed) == ["no_such_module"]
    (numpy,) = report.modules
    assert numpy.seconds > 0
    assert 1 < numpy.anonymous_mb < report.anonymous_mb
    assert "numpy.linalg" in report.loaded
    assert report.sockets == 0
    assert set(import_modules([])) == set(type(report).model_fields)


@pytest.mark.parametrize("waits", [True, False])
def test_a_restore_that_has_begun_before_its_image_is_known(
    host: SandboxHost, images: Path, run_call: RunCall, waits: bool
) -> None:
    sandbox = host.take(to_restore=True)
    command = restoring(sandbox)
    if not waits:
        # As where memory is short. It is begun again.
        os.kill(command, signal.SIGKILL)
        os.waitid(os.P_PID, command, os.WEXITED | os.WNOWAIT)
    sandbox.restore(images / "empty", timeout=SECONDS)

    assert run_call(sandbox.wait_ready(timeout=SECONDS), lambda: "here") == "here"
    assert not Path(f"/proc/{command}").exists()
    host.discard(sandbox)


def restoring(sandbox: Sandbox) -> int:
    """The process of the restore that waits, of a sandbox that is made to restore."""
    (pid,) = [
        pid
        for pid in processes_under(sandbox.folder)
        if b"restore" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    ]
    return pid


def test_a_sandbox_that_is_made_to_restore_can_be_started_cold(host: SandboxHost, run_call: RunCall) -> None:
    sandbox = host.take(to_restore=True)
    command = restoring(sandbox)
    sandbox.start(timeout=SECONDS)

    assert run_call(sandbox.wait_ready(timeout=SECONDS), lambda: "here") == "here"
    assert not Path(f"/proc/{command}").exists()
    host.discard(sandbox)


def test_nothing_is_left_of_a_sandbox_that_restored_nothing(host: SandboxHost) -> None:
    sandbox = host.take(to_restore=True)
    command = restoring(sandbox)
    sandbox.destroy()

    assert processes_under(sandbox.folder) == []
    assert not Path(f"/proc/{command}").exists()
    assert not sandbox.folder.exists()
    host.discard(sandbox)


@pytest.mark.parametrize("to_restore", [True, False])
def test_a_damaged_image_is_a_failure_that_tells_why(
    host: SandboxHost, images: Path, tmp_path: Path, to_restore: bool
) -> None:
    sandbox = host.take(to_restore=to_restore)
    damaged = tmp_path / "damaged"
    shutil.copytree(images / "empty", damaged)
    for path in damaged.iterdir():
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    with pytest.raises(SandboxFailedError, match="restoring damaged failed") as caught:
        sandbox.restore(damaged, timeout=SECONDS)
    assert caught.value.log_tail
    host.discard(sandbox)


def test_an_image_that_is_not_there_is_a_failure(sandbox: Sandbox, tmp_path: Path) -> None:
    with pytest.raises(SandboxFailedError, match="restoring missing failed"):
        sandbox.restore(tmp_path / "missing", timeout=SECONDS)


def test_a_snapshot_that_fails_says_so(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.start(timeout=SECONDS, imports=[])
    sandbox.wait_imported(timeout=SECONDS)
    kill_processes_under(sandbox.folder)

    with pytest.raises(SandboxFailedError, match="taking the snapshot failed"):
        sandbox.checkpoint(tmp_path / "image", timeout=SECONDS)


def test_a_sandbox_that_dies_before_it_is_ready_is_noticed_at_once(sandbox: Sandbox) -> None:
    sandbox.start(timeout=SECONDS, imports=[])
    sandbox.wait_imported(timeout=SECONDS)  # it waits for a word that never comes
    sandbox.kill()
    began = time.monotonic()

    with pytest.raises(SandboxFailedError, match=r"ended before executor.sock appeared"):
        sandbox.wait_ready(timeout=SECONDS)
    assert time.monotonic() - began < SECONDS


def test_an_executor_that_cannot_get_ready_tells_why(sandbox: Sandbox) -> None:
    (sandbox.control_dir / "imports.json").write_text("{")
    sandbox.start(timeout=SECONDS)

    with pytest.raises(SandboxFailedError, match="JSONDecodeError"):
        sandbox.wait_ready(timeout=SECONDS)


def test_a_hook_that_fails_after_the_restore_is_told(host: SandboxHost, sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.start(timeout=SECONDS, imports=["unlicensed"])
    sandbox.wait_imported(timeout=SECONDS)
    sandbox.checkpoint(tmp_path / "image", timeout=SECONDS)
    restored = host.take()
    restored.restore(tmp_path / "image", timeout=SECONDS)

    with pytest.raises(SandboxFailedError, match="no license file"):
        restored.wait_ready(timeout=SECONDS)
    host.discard(restored)


def test_an_executor_that_does_not_get_ready_is_a_failure_in_time(sandbox: Sandbox) -> None:
    sandbox.start(timeout=SECONDS, imports=[])

    with pytest.raises(SandboxFailedError, match="did not appear in time"):
        sandbox.wait_ready(timeout=0.5)


def test_a_sandbox_killed_during_a_call_ends_the_call(sandbox: Sandbox, run_call: RunCall) -> None:
    import threading

    sandbox.start(timeout=SECONDS)
    connection = sandbox.wait_ready(timeout=SECONDS)

    def spin() -> None:
        while True:
            sum(range(10_000_000))

    threading.Timer(0.2, sandbox.kill).start()
    with pytest.raises(ConnectionLostError):
        run_call(connection, spin)


def test_nothing_is_left_of_a_destroyed_sandbox(host: SandboxHost, run_call: RunCall) -> None:
    mounts, descriptors = _mounts(), _descriptor_count()
    sandbox = host.take()
    sandbox.start(timeout=SECONDS)
    run_call(sandbox.wait_ready(timeout=SECONDS), lambda: 1)
    assert len(processes_under(sandbox.folder)) >= 2, "the sandbox and its gofer"
    sandbox.destroy()

    assert processes_under(sandbox.folder) == []
    assert not sandbox.folder.exists()
    assert not sandbox.alive
    assert _mounts() == mounts
    assert _descriptor_count() <= descriptors + 1, "at most the waiter's inotify instance is kept"
    sandbox.destroy()
    host.discard(sandbox)


def test_the_sandbox_is_sealed(
    sandbox: Sandbox, images: Path, run_call: RunCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.restore(images / "empty", timeout=SECONDS)
    connection = sandbox.wait_ready(timeout=SECONDS)

    def look() -> dict[str, Any]:
        import os
        import socket
        import sys
        from pathlib import Path

        def refused(action: Callable[[], Any]) -> bool:
            try:
                action()
            except OSError:
                return True
            return False

        return {
            "ids": (os.getuid(), os.getgid(), os.getgroups()),
            "capabilities": [line for line in Path("/proc/self/status").read_text().splitlines() if "Cap" in line],
            "environment": sorted(os.environ),
            "writable": [
                path
                for path in ("/", "/usr", "/etc", "/opt/packages", "/opt/readie", "/run/readie", "/proc", "/sys")
                if not refused(lambda path=path: Path(path, "probe").touch())
            ],
            "control": [
                refused(lambda: Path("/run/readie/executor.sock").unlink()),
                refused(lambda: Path("/run/readie/go").write_text("")),
                refused(lambda: Path("/run/readie").chmod(0o777)),
                refused(lambda: Path("/run/readie/link").symlink_to("/etc/passwd")),
            ],
            "scratch": [Path(path, "probe").write_text("x") for path in ("/tmp", "/dev/shm")],
            "users": Path("/etc/passwd").read_text(),
            "shadow": Path("/etc/shadow").exists(),
            "offline": refused(lambda: socket.create_connection(("192.0.2.1", 80), timeout=5)),
            "packages": [path for path in sys.path if "site-packages" in path or "dist-packages" in path],
            "working_directory": str(Path.cwd()),
        }

    seen = run_call(connection, look)
    assert seen["ids"] == (65534, 65534, [])
    assert {line.split()[1].strip("0") for line in seen["capabilities"]} == {""}
    assert set(seen["environment"]) <= {
        "HOME", "LANG", "PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH",
    }  # fmt: skip
    assert seen["writable"] == []
    assert seen["control"] == [True] * 4
    assert seen["scratch"] == [1, 1]
    assert len(seen["users"].splitlines()) == 2
    assert not seen["shadow"]
    assert seen["offline"]
    assert seen["packages"] == []
    assert seen["working_directory"] == "/tmp"


def test_memory_on_tmp_is_bounded(sandbox: Sandbox, run_call: RunCall) -> None:
    sandbox.start(timeout=SECONDS)
    connection = sandbox.wait_ready(timeout=SECONDS)

    def size() -> int:
        import os

        status = os.statvfs("/tmp")
        return status.f_blocks * status.f_frsize

    assert run_call(connection, size) == 1 << 30


def test_ordinary_parts_of_python_work(sandbox: Sandbox, run_call: RunCall) -> None:
    sandbox.start(timeout=SECONDS)
    connection = sandbox.wait_ready(timeout=SECONDS)

    def use() -> list[Any]:
        import getpass
        import multiprocessing
        import subprocess
        import tempfile

        with multiprocessing.get_context("fork").Pool(2) as pool, tempfile.NamedTemporaryFile() as file:
            file.write(b"x")
            shell = subprocess.run(["/bin/sh", "-c", "echo $((6*7))"], capture_output=True, check=True)
            return [getpass.getuser(), pool.map(abs, [-1, -2]), shell.stdout.decode().strip(), callable(exit)]

    assert run_call(connection, use) == ["readie", [1, 2], "42", True]


def test_a_link_in_the_control_directory_does_not_lead_to_the_host(sandbox: Sandbox, tmp_path: Path) -> None:
    report = {"imported": [], "failed": {}, "modules": [], "loaded": ["of the host"], "anonymous_mb": 1.0}
    (tmp_path / "imported.json").write_text(json.dumps({**report, "threads": 1, "sockets": 0}))
    (sandbox.control_dir / "imported.json").symlink_to(tmp_path / "imported.json")

    with pytest.raises(SandboxFailedError, match="can't be read"):
        sandbox.wait_imported(timeout=SECONDS)


def _mounts() -> list[str]:
    return sorted(line for line in Path("/proc/self/mounts").read_text().splitlines() if "readie" in line)


def _descriptor_count() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
