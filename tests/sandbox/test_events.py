from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from workers.sandbox.events import FileWaiter, ProcessEndedError


@pytest.fixture
def waiter() -> Iterator[FileWaiter]:
    waiter = FileWaiter()
    yield waiter
    waiter.close()


@pytest.fixture
def process() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    process = subprocess.Popen(["sleep", "100"])
    pidfd = os.pidfd_open(process.pid)
    yield process, pidfd
    process.kill()
    process.wait()
    os.close(pidfd)


def test_a_file_that_is_there_is_not_waited_for(
    waiter: FileWaiter, process: tuple[subprocess.Popen[bytes], int], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    waiter.wait(tmp_path / "file", pidfd=process[1], deadline=time.monotonic() + 30)


@pytest.mark.parametrize("attempt", range(3))
def test_a_file_that_is_renamed_to_its_name_is_noticed(
    waiter: FileWaiter, process: tuple[subprocess.Popen[bytes], int], tmp_path: Path, attempt: int
) -> None:
    (tmp_path / ".file").touch()
    renamer = threading.Timer(0.05, (tmp_path / ".file").rename, [tmp_path / "file"])
    renamer.start()
    waiter.wait(tmp_path / "file", pidfd=process[1], deadline=time.monotonic() + 30)
    renamer.join()


def test_the_end_of_the_process_is_noticed(
    waiter: FileWaiter, process: tuple[subprocess.Popen[bytes], int], tmp_path: Path
) -> None:
    threading.Timer(0.05, process[0].kill).start()

    with pytest.raises(ProcessEndedError, match="before file appeared"):
        waiter.wait(tmp_path / "file", pidfd=process[1], deadline=time.monotonic() + 30)


def test_nothing_happening_is_a_timeout(
    waiter: FileWaiter, process: tuple[subprocess.Popen[bytes], int], tmp_path: Path
) -> None:
    with pytest.raises(TimeoutError):
        waiter.wait(tmp_path / "file", pidfd=process[1], deadline=time.monotonic() + 0.05)


def test_a_folder_that_is_gone_is_told(
    waiter: FileWaiter, process: tuple[subprocess.Popen[bytes], int], tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError):
        waiter.wait(tmp_path / "gone" / "file", pidfd=process[1], deadline=time.monotonic() + 30)


def test_many_waits_at_once_keep_apart_and_leave_no_more_descriptors_than_waited_at_once(
    waiter: FileWaiter, process: tuple[subprocess.Popen[bytes], int], tmp_path: Path
) -> None:
    folders = [tmp_path / str(number) for number in range(40)]
    for folder in folders:
        folder.mkdir()
    before = len(list(Path("/proc/self/fd").iterdir()))

    def wait(folder: Path) -> bool:
        waiter.wait(folder / "file", pidfd=process[1], deadline=time.monotonic() + 30)
        return (folder / "file").exists()

    with ThreadPoolExecutor(4) as pool:
        waits = [pool.submit(wait, folder) for folder in folders]
        for folder in folders:
            (folder / "file").touch()
        assert all(wait.result() for wait in waits)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 4
