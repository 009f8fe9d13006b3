"""All sandboxes of a worker: their making and removal, and what a crashed worker leaves."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from workers.sandbox.filesystem import DESCRIPTION, Filesystem
from workers.sandbox.host import SandboxHost
from workers.sandbox.processes import processes_under
from workers.sandbox.runsc import find_runsc
from workers.sandbox.sandbox import SandboxFailedError

SECONDS = 60.0
ROOT = Path(__file__).parents[2]

CRASHING_WORKER = """
import pathlib, sys, time
from workers.sandbox.filesystem import read_filesystem
from workers.sandbox.host import SandboxHost
from workers.sandbox.runsc import find_runsc

host = SandboxHost(pathlib.Path(sys.argv[1]), find_runsc(), read_filesystem(pathlib.Path(sys.argv[2])))
sandbox, created = host.take(), host.take()
sandbox.start(timeout=60)  # without a connection, whose end would be the executor's
print("up", flush=True)
time.sleep(100)
"""

pytestmark = pytest.mark.sandbox


def test_many_threads_get_and_give_back_sandboxes(
    run_dir: Path, filesystem: Filesystem, images: Path, run_call: Callable[..., Any]
) -> None:
    with SandboxHost(run_dir / "many", find_runsc(), filesystem) as host:

        def run(number: int) -> int:
            sandbox = host.take()
            try:
                sandbox.restore(images / "empty", timeout=SECONDS)
                return int(run_call(sandbox.wait_ready(timeout=SECONDS), lambda: number * 2))
            finally:
                host.discard(sandbox)

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(run, range(12))) == [number * 2 for number in range(12)]
    assert not (run_dir / "many").exists()
    assert processes_under(run_dir / "many") == []


def test_discarded_sandboxes_go_while_the_host_lives(run_dir: Path, filesystem: Filesystem) -> None:
    with SandboxHost(run_dir / "gone", find_runsc(), filesystem) as host:
        sandboxes = [host.take() for _ in range(3)]
        for sandbox in sandboxes:
            host.discard(sandbox)
        deadline = time.monotonic() + SECONDS
        while any(sandbox.folder.exists() for sandbox in sandboxes):
            assert time.monotonic() < deadline
            os.sched_yield()
        assert processes_under(run_dir / "gone") == []


def test_what_a_killed_worker_left_is_removed_at_the_next_start_and_nothing_else(
    run_dir: Path, filesystem: Filesystem, host: SandboxHost, run_call: Callable[..., Any]
) -> None:
    bystander = host.take()
    bystander.start(timeout=SECONDS)
    connection = bystander.wait_ready(timeout=SECONDS)
    folder = filesystem.packages.parent
    assert (folder / DESCRIPTION).exists()
    worker = subprocess.Popen(
        [sys.executable, "-c", CRASHING_WORKER, str(run_dir / "crash"), str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"up\n"

    with pytest.raises(RuntimeError, match="a running worker has the run folder"):
        SandboxHost(run_dir / "crash", find_runsc(), filesystem)
    left = processes_under(run_dir / "crash")
    worker.kill()
    worker.wait()
    worker.stdout.close()
    assert len(left) >= 4, "two sandboxes and their gofers live on"
    assert processes_under(run_dir / "crash") == left

    with SandboxHost(run_dir / "crash", find_runsc(), filesystem):
        assert processes_under(run_dir / "crash") == []
        assert {path.name for path in (run_dir / "crash").iterdir() if path.is_dir()} == {"root", "layers"}
        assert run_call(connection, lambda: "untouched") == "untouched"
    host.discard(bystander)


def test_a_sandbox_that_cannot_be_made_tells_why_and_leaves_nothing(
    run_dir: Path, filesystem: Filesystem, tmp_path: Path
) -> None:
    wrong = Filesystem(**{**vars(filesystem), "packages": tmp_path / "missing"})
    with SandboxHost(run_dir / "wrong", find_runsc(), wrong) as host:
        with pytest.raises(SandboxFailedError, match="creating the sandbox failed") as caught:
            host.take()
        assert "missing" in caught.value.reason
        assert {path.name for path in (run_dir / "wrong").iterdir() if path.is_dir()} == {"root", "layers"}


def test_a_run_folder_whose_path_is_too_long_is_refused(filesystem: Filesystem, run_dir: Path) -> None:
    with pytest.raises(ValueError, match="too long for runsc's sockets"):
        SandboxHost(run_dir / ("x" * 100), find_runsc(), filesystem)
