from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from workers.sandbox.runsc import (
    CheckpointOptions,
    CreateOptions,
    Runsc,
    RunscError,
    RunscOptions,
    find_runsc,
)


@pytest.fixture
def options(tmp_path: Path) -> RunscOptions:
    return RunscOptions(root=tmp_path / "state", log=tmp_path / "log", panic_log=tmp_path / "panic")


def script(tmp_path: Path, text: str) -> Runsc:
    """An executable that stands in for runsc where runsc itself would have to misbehave."""
    path = tmp_path / "runsc"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return Runsc(path)


def test_the_global_flags(tmp_path: Path) -> None:
    options = RunscOptions(Path("/s"), Path("/l"), Path("/p"), "ptrace", "sandbox", "root:self", "nvproxy")

    assert options.args() == [
        "--root=/s",
        "--log=/l",
        "--panic-log=/p",
        "--platform=ptrace",
        "--network=sandbox",
        "--overlay2=root:self",
        "--host-uds=all",
        "--ignore-cgroups",
        "--nvproxy",
    ]


def test_the_flags_of_each_command(tmp_path: Path, options: RunscOptions) -> None:
    runsc = script(tmp_path, f'echo "$@" >> {tmp_path}/argv')
    runsc.create(options, "id", CreateOptions(Path("/b"), Path("/b/pid")), timeout=10)
    runsc.start(options, "id", timeout=10)
    runsc.checkpoint(options, "id", CheckpointOptions(Path("/i"), exclude_zero_pages=True), timeout=10)
    runsc.checkpoint(options, "id", CheckpointOptions(Path("/i"), exclude_zero_pages=False), timeout=10)

    flags = " ".join(options.args())
    assert (tmp_path / "argv").read_text().splitlines() == [
        f"{flags} create --bundle=/b --pid-file=/b/pid id",
        f"{flags} start id",
        f"{flags} checkpoint --compression=none --image-path=/i --exclude-committed-zero-pages id",
        f"{flags} checkpoint --compression=none --image-path=/i id",
    ]


OPENS_ITS_LOG = """for flag; do case $flag in
--log=*) log=${flag#--log=};;
--image-path=*) image=${flag#--image-path=};;
esac; done
exec 2>> "$log"
"""


def test_a_restore_begins_before_it_hears_which_image(tmp_path: Path, options: RunscOptions) -> None:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    runsc = script(tmp_path, f'{OPENS_ITS_LOG} echo "$@" > {tmp_path}/argv; readlink $image > {tmp_path}/image')
    pending = runsc.begin_restore(options, "id", bundle)
    time.sleep(0.2)
    assert not (tmp_path / "argv").exists(), "it waits at its log"
    pending.finish(Path("/images/one"), timeout=10)

    flags = " ".join(replace(options, log=bundle / "restore.log").args())
    expected = f"{flags} restore --detach --bundle={bundle} --image-path={bundle}/image id\n"
    assert (tmp_path / "argv").read_text() == expected
    assert (tmp_path / "image").read_text() == "/images/one\n"


def test_what_a_restore_says_that_fails_is_told(tmp_path: Path, options: RunscOptions) -> None:
    runsc = script(tmp_path, f"{OPENS_ITS_LOG} echo 'no such image' >&2; exit 128")
    with pytest.raises(RunscError, match="runsc restore failed with status 128: no such image"):
        runsc.begin_restore(options, "id", tmp_path).finish(Path("/images/one"), timeout=10)
    assert options.log.read_text() == "no such image\n"


def test_a_restore_that_hangs_is_killed(tmp_path: Path, options: RunscOptions) -> None:
    runsc = script(tmp_path, f"{OPENS_ITS_LOG} exec sleep 100")
    with pytest.raises(RunscError, match="runsc restore did not end in time"):
        runsc.begin_restore(options, "id", tmp_path).finish(Path("/images/one"), timeout=0.5)


def test_a_failed_command_is_told_with_its_log(tmp_path: Path, options: RunscOptions) -> None:
    runsc = script(tmp_path, f"echo 'no such image' > {options.log}; exit 128")

    with pytest.raises(RunscError, match="runsc start failed with status 128: no such image") as caught:
        runsc.start(options, "id", timeout=10)
    assert (caught.value.command, caught.value.exit_status) == ("start", 128)


def test_of_a_long_log_the_last_message_is_told(tmp_path: Path, options: RunscOptions) -> None:
    options.log.write_text('{"msg":"first"}\n{"msg":"object missing\\ngoroutine 19 [running]","level":"error"}\n')

    with pytest.raises(RunscError, match=r"runsc start failed with status 1: object missing$") as caught:
        script(tmp_path, "exit 1").start(options, "id", timeout=10)
    assert "goroutine" in caught.value.output


def test_a_command_that_hangs_is_killed(tmp_path: Path, options: RunscOptions) -> None:
    runsc = script(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 100")

    with pytest.raises(RunscError, match="runsc start did not end in time"):
        runsc.start(options, "id", timeout=0.5)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_child_that_keeps_its_output_open_is_not_waited_for(tmp_path: Path, options: RunscOptions) -> None:
    """A sandbox lives on after the command that made it, with the descriptors of that command."""
    runsc = script(tmp_path, f"sleep 100 & echo $! > {tmp_path}/pid")
    began = time.monotonic()
    runsc.start(options, "id", timeout=60)

    assert time.monotonic() - began < 60
    os.kill(int((tmp_path / "pid").read_text()), 9)


def test_the_environment_of_the_worker_is_not_handed_on(
    tmp_path: Path, options: RunscOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("READIE_REDIS_URL", "redis://:secret@localhost")
    script(tmp_path, f"env > {tmp_path}/env").start(options, "id", timeout=10)

    assert "secret" not in (tmp_path / "env").read_text()


def test_an_executable_that_is_no_runsc_has_no_version(tmp_path: Path) -> None:
    with pytest.raises(RunscError, match="--version"):
        _ = script(tmp_path, "echo something else").version


def test_an_explicit_path_must_be_executable(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        find_runsc(tmp_path / "nowhere")


def test_the_runsc_beside_python_comes_before_the_one_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside, on_path = tmp_path / "venv", tmp_path / "bin"
    for folder in (beside, on_path):
        folder.mkdir()
        script(folder, "")
    monkeypatch.setattr(sys, "executable", str(beside / "python"))
    monkeypatch.setenv("PATH", str(on_path))

    assert find_runsc() == beside / "runsc"
    (beside / "runsc").unlink()
    assert find_runsc() == on_path / "runsc"
    (on_path / "runsc").unlink()
    with pytest.raises(FileNotFoundError, match="get-runsc"):
        find_runsc()


@pytest.mark.sandbox
def test_the_version_and_the_features_are_probed() -> None:
    runsc = Runsc(find_runsc())

    assert runsc.version[0].isdigit()
    assert runsc.excludes_zero_pages


def test_a_container_is_created_inside_its_control_groups(tmp_path: Path, options: RunscOptions) -> None:
    entries = (tmp_path / "memory", tmp_path / "pids")
    runsc = script(tmp_path, f'cat {entries[0]} {entries[1]} > {tmp_path}/entered; echo "$@" > {tmp_path}/argv')
    runsc.create(options, "id", CreateOptions(tmp_path, tmp_path / "pid", entries), timeout=10)

    assert (tmp_path / "entered").read_text() == "0\n0\n", "both before runsc began"
    assert (tmp_path / "argv").read_text().endswith(f"create --bundle={tmp_path} --pid-file={tmp_path}/pid id\n")


def test_a_container_that_can_not_enter_its_control_groups_is_not_created(
    tmp_path: Path, options: RunscOptions
) -> None:
    runsc = script(tmp_path, f"touch {tmp_path}/ran")
    with pytest.raises(RunscError):
        runsc.create(
            options, "id", CreateOptions(tmp_path, tmp_path / "pid", (tmp_path / "missing" / "procs",)), timeout=10
        )
    assert not (tmp_path / "ran").exists()
