"""Folders that appear whole or not at all."""

import subprocess
import sys
from pathlib import Path

import pytest

from readie.generations.publish import BusyError, building_in, publish, staging, switch
from tests.conftest import ROOT


def test_a_published_folder_appears_with_its_content_and_nothing_else_does(tmp_path: Path) -> None:
    with building_in(tmp_path), staging(tmp_path) as staged:
        (staged / "sub").mkdir()
        (staged / "sub" / "file").write_text("content")
        publish(staged, tmp_path / "result")
    assert (tmp_path / "result" / "sub" / "file").read_text() == "content"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".lock", "result"]


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with building_in(tmp_path), staging(tmp_path) as staged:
            (staged / "half").touch()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [entry.name for entry in tmp_path.iterdir()] == [".lock"]


def test_two_builders_do_not_work_in_one_folder(tmp_path: Path) -> None:
    code = (
        "from readie.generations.publish import *; from pathlib import Path\n"
        f"with building_in(Path({str(tmp_path)!r})): pass"
    )
    command = [sys.executable, "-c", code]
    with building_in(tmp_path), staging(tmp_path) as staged:
        other = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
        assert BusyError.__name__ in other.stderr
        assert staged.exists()
    assert subprocess.run(command, cwd=ROOT, check=False, timeout=60).returncode == 0


def test_what_a_killed_builder_left_is_removed_by_the_next(tmp_path: Path) -> None:
    code = (
        "import os, signal; from readie.generations.publish import *; from pathlib import Path\n"
        f"with building_in(Path({str(tmp_path)!r})), staging(Path({str(tmp_path)!r})) as staged:\n"
        "    (staged / 'half').touch()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, timeout=60)
    assert len(list(tmp_path.glob(".staging-*/half"))) == 1
    with building_in(tmp_path):
        assert [entry.name for entry in tmp_path.iterdir()] == [".lock"]


def test_a_link_is_switched_whether_or_not_it_was_there(tmp_path: Path) -> None:
    link = tmp_path / "current"
    switch(link, "first")
    assert str(link.readlink()) == "first"
    # What a killed one leaves behind.
    (tmp_path / ".current").symlink_to("half")
    switch(link, "second")
    assert str(link.readlink()) == "second"
    assert [entry.name for entry in tmp_path.iterdir()] == ["current"]
