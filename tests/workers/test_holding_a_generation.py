"""A worker that is about to serve what is just being removed."""

import fcntl
import threading
from pathlib import Path

import pytest

from tests.local_stack import eventually
from workers import serving


def test_what_was_removed_while_the_worker_waited_for_its_lock_is_not_served(tmp_path: Path) -> None:
    kept, removed = tmp_path / "filesystem.json", tmp_path / "manifest.json"
    kept.touch()
    removed.touch()
    outcome: list[object] = []

    def hold() -> None:
        try:
            outcome.append(serving._hold([kept, removed]))
        except serving._RemovedError as error:
            outcome.append(str(error))

    with removed.open() as remover:
        fcntl.flock(remover, fcntl.LOCK_EX)
        worker = threading.Thread(target=hold)
        worker.start()
        eventually(lambda: not can_lock_alone(kept), "the worker got as far as the second lock")
        removed.unlink()
    worker.join(timeout=30)
    assert outcome == [f"{removed} was just removed"]
    assert can_lock_alone(kept), "what it had locked before is free again"


@pytest.mark.parametrize("missing", [0, 1])
def test_what_is_not_there_is_not_served(tmp_path: Path, missing: int) -> None:
    paths = [tmp_path / "filesystem.json", tmp_path / "manifest.json"]
    for path in paths:
        path.touch()
    paths[missing].unlink()
    with pytest.raises(serving._RemovedError, match=paths[missing].name):
        serving._hold(paths)


def can_lock_alone(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
