"""A worker that can't run says why; one that ran leaves nothing."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from readie import remote
from readie.client import Client
from readie.hints import Hints
from readie.options import Options
from readie.protocol.envelope import CallState
from tests.conftest import ROOT
from tests.local_stack import LocalStack, default_client_of

EXIT_CANNOT_START = 78


def start_worker(prefix: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a worker that is expected to end at once."""
    return subprocess.run(
        [*prefix, sys.executable, "-m", "workers", "--name", "refused"],
        env={**os.environ, "READIE_REDIS_URL": "redis://127.0.0.1:1/0", **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_without_runsc_a_worker_says_how_to_get_one(data_folder: Path) -> None:
    done = start_worker([], READIE_DATA=str(data_folder), READIE_RUNSC="/nowhere/runsc")
    assert done.returncode == EXIT_CANNOT_START
    assert "/nowhere/runsc" in done.stderr
    assert "scripts/get-runsc" in done.stderr


def test_with_an_old_runsc_a_worker_names_both_versions(tmp_path: Path, data_folder: Path) -> None:
    old = tmp_path / "runsc"
    old.write_text("#!/bin/sh\necho runsc version 0.0~20221219\necho spec: 1.0.2\n")
    old.chmod(0o755)
    done = start_worker([], READIE_DATA=str(data_folder), READIE_RUNSC=str(old))
    assert done.returncode == EXIT_CANNOT_START
    assert "20221219" in done.stderr
    assert "20240729" in done.stderr


def test_on_another_machine_a_worker_says_what_it_needs() -> None:
    done = start_worker(["setarch", "i686"])
    assert done.returncode == EXIT_CANNOT_START
    assert "amd64" in done.stderr
    assert "i686" in done.stderr


def test_without_root_a_worker_says_so() -> None:
    # It may read everything, as this Python may lie in root's home.
    capabilities = ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    done = start_worker(["setpriv", "--reuid=65534", *capabilities])
    assert done.returncode == EXIT_CANNOT_START, done.stderr
    assert "root" in done.stderr
    assert "65534" in done.stderr


def test_without_a_flavor_a_worker_says_how_to_build_one(tmp_path: Path) -> None:
    run = Path(tempfile.mkdtemp(prefix="readie-"))
    done = start_worker([], READIE_DATA=str(tmp_path), READIE_RUN=str(run))
    assert done.returncode == EXIT_CANNOT_START
    assert "make generation" in done.stderr
    run.rmdir()  # it has left nothing there


def test_with_a_run_folder_whose_path_is_too_long_a_worker_says_so(tmp_path: Path, data_folder: Path) -> None:
    done = start_worker([], READIE_DATA=str(data_folder), READIE_RUN=str(tmp_path / ("long" * 20)))
    assert done.returncode == EXIT_CANNOT_START
    assert "too long for runsc's sockets" in done.stderr
    assert "Traceback" not in done.stderr


def test_on_a_full_disk_a_worker_says_so_and_may_be_started_again(data_folder: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="readie-"))  # a short path, for runsc's sockets
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "readie-test", folder], check=True)
    try:
        (folder / "full").write_bytes(bytes(4096))
        done = start_worker([], READIE_DATA=str(data_folder), READIE_RUN=str(folder / "run"))
    finally:
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()
    assert done.returncode == 1
    assert "cannot start now" in done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def sandbox_processes() -> set[int]:
    """Return the pids of all runsc processes."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if b"runsc" in (entry / "cmdline").read_bytes().split(b"\0", 1)[0]:
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


def cgroups() -> set[str]:
    """Return the cgroups of all workers of this machine."""
    return {
        f"{root}/{folder}"
        for root, folders, _ in os.walk("/sys/fs/cgroup")
        for folder in folders
        if "readie" in root + folder
    }


def traces(marker: str) -> list[str]:
    """Return mounts and processes whose name or environment has ``marker``."""
    found = [line for line in Path("/proc/self/mounts").read_text().splitlines() if marker in line]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if marker.encode() in (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes():
                    found.append(f"process {entry.name}")
            except OSError:
                continue
    return found


def test_nothing_is_left_after_down(tmp_path: Path, data_folder: Path) -> None:
    before, groups_before = sandbox_processes(), cgroups()
    stack = LocalStack(tmp_path / "home-of-this-test")
    stack.environment["READIE_DATA"] = str(data_folder)
    stack.up("--workers", "2", "--slots", "2")
    client = Client(redis_url=stack.redis_url)
    try:
        calls = [client.submit(lambda: 5, (), {}, Options(), lambda: Hints(())) for _ in range(6)]
        assert [call.result(timeout=60) for call in calls] == [5] * 6
        assert traces("home-of-this-test")
        assert sandbox_processes() - before
        assert cgroups() - groups_before
    finally:
        client.close()
        stack.down()
    assert traces("home-of-this-test") == []
    assert sandbox_processes() - before == set()
    assert cgroups() - groups_before == set()
    assert not stack.run_folder.exists()
    assert stack.run("status", "--json").returncode != 0


def test_a_damaged_image_becomes_a_cold_start_of_the_same_call_and_is_avoided_by_the_next(
    tmp_path: Path, data_folder: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(data_folder, data, symlinks=True)
    generation = next(path.resolve() for path in (data / "generations" / "default").iterdir() if path.name == "current")
    for image in (generation / "checkpoints" / "checkpoint_1").glob("*.img"):
        with image.open("r+b") as file:
            file.write(os.urandom(4096))
    stack = LocalStack(tmp_path / "home")
    stack.environment["READIE_DATA"] = str(data)
    stack.up("--slots", "2")
    with contextlib.ExitStack() as hold:
        hold.callback(stack.down)
        hold.enter_context(default_client_of(stack))

        @remote(checkpoint_id="checkpoint_1")
        def answer() -> int:
            return 42

        call = answer.spawn()
        assert call.result(timeout=60) == 42
        report = call.report()
        assert report.start == "cold"
        assert report.checkpoint_id is None
        assert report.fallback is not None
        assert report.fallback.startswith("checkpoint_1: ")
        assert "starting cold" in stack.worker_log()

        @remote
        def pandas_name() -> str:
            import pandas as pd

            return pd.__name__

        explained = pandas_name.explain()
        assert "checkpoint_1" not in {start.checkpoint_id for start in explained.starts}
        again = pandas_name.spawn()
        assert again.result(timeout=60) == "pandas"
        assert again.report().fallback is None


def test_without_a_worker_a_call_waits_and_says_so(tmp_path: Path, data_folder: Path) -> None:
    stack = LocalStack(tmp_path / "home")
    stack.environment["READIE_DATA"] = str(data_folder)
    stack.up("--workers", "0")
    client = Client(redis_url=stack.redis_url)
    try:
        call = client.submit(lambda: 1, (), {}, Options(), lambda: Hints(()))
        with pytest.raises(TimeoutError):
            call.result(timeout=1)
        status = call.status()
        assert status.state is CallState.QUEUED
        assert "no worker" in str(status)
    finally:
        client.close()
        stack.down()
