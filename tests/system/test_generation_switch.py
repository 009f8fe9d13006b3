"""A running worker takes up another generation without dropping a call."""

import fcntl
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from readie.client import Client
from readie.hints import Hints
from readie.options import Options
from tests.local_stack import LocalStack, eventually


@pytest.fixture
def data(tmp_path: Path, data_folder: Path) -> Path:
    """Data of this test's own."""
    return Path(shutil.copytree(data_folder, tmp_path / "data", symlinks=True))


@pytest.fixture
def stack(tmp_path: Path, data: Path) -> Iterator[LocalStack]:
    """A running stack that serves it."""
    stack = LocalStack(tmp_path / "home")
    stack.environment["READIE_DATA"] = str(data)
    stack.up("--slots", "2")
    yield stack
    stack.down()


def copy_generation(folder: Path, new_id: str) -> None:
    """Copy the current generation under another id."""
    current = (folder / "current").resolve()
    shutil.copytree(current, folder / new_id)
    for name in ("manifest.json", "catalogue.json"):
        path = folder / new_id / name
        path.write_text(path.read_text().replace(current.name, new_id))


def switch(folder: Path, target: str) -> None:
    """Let ``current`` lead to another generation, in one step."""
    (folder / "next").symlink_to(target)
    (folder / "next").rename(folder / "current")


def in_use(generation: Path) -> bool:
    """Return whether a worker holds the generation."""
    with (generation / "manifest.json").open() as manifest:
        try:
            fcntl.flock(manifest, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_new_generation_is_taken_up_while_calls_run(stack: LocalStack, data: Path) -> None:
    generations = data / "generations" / "default"
    old = (generations / "current").resolve()
    copy_generation(generations, "second")
    assert in_use(old)
    assert not in_use(generations / "second")
    client = Client(redis_url=stack.redis_url)
    served: list[object] = []
    done = threading.Event()

    def keep_calling() -> None:
        while not done.is_set():
            call = client.submit(lambda: 1, (), {}, Options(checkpoint_id="checkpoint_0"), lambda: Hints(()))
            served.append((call.result(timeout=60), call.report().start))

    caller = threading.Thread(target=keep_calling)
    caller.start()
    try:
        switch(generations, "second")
        eventually(lambda: stack.status()["workers"][0]["generation"] == "second", "the worker serves the new one")
        already = len(served)
        eventually(lambda: len(served) > already + 2, "calls go on")
        eventually(lambda: not in_use(old), "the old one is let go")
    finally:
        done.set()
        caller.join()
        client.close()
    assert in_use(generations / "second")
    assert set(served) == {(1, "restored")}


def test_a_generation_that_does_not_fit_is_refused_and_the_old_one_served_on(stack: LocalStack, data: Path) -> None:
    generations = data / "generations" / "default"
    before = stack.status()["workers"][0]["generation"]
    copy_generation(generations, "broken")
    manifest = generations / "broken" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"runsc_version": "', '"runsc_version": "other-'))
    switch(generations, "broken")
    eventually(lambda: "broken does not fit" in stack.worker_log(), "the worker says so")
    assert "runsc_version: the generation has other-" in stack.worker_log()
    assert stack.status()["workers"][0]["generation"] == before
