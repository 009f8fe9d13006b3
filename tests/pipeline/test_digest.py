"""The digest of a filesystem, and the host's libraries that are part of it."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from workers.pipeline.digest import LIBRARY_FOLDERS, filesystem_digest
from workers.pipeline.libraries import host_libraries, needed

PYTHON = Path(sys.executable).resolve()


@pytest.fixture
def digest(tmp_path: Path) -> Callable[[], str]:
    """Take the digest of a small filesystem below ``tmp_path``."""
    for name, content in {
        "prefix/lib/python3.11/json/__init__.py": "stdlib",
        "prefix/lib/python3.11/site-packages/seen.py": "of the host",
        "packages/numpy/__init__.py": "package",
        "packages/numpy/__pycache__/__init__.cpython-311.pyc": "byte code",
        "executor/workers/executor/__main__.py": "executor",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(content)
    (tmp_path / "python").write_bytes(PYTHON.read_bytes())

    def take() -> str:
        return filesystem_digest(
            python=tmp_path / "python",
            prefix=tmp_path / "prefix",
            python_version="3.11",
            packages=tmp_path / "packages",
            executor=tmp_path / "executor",
        )

    return take


@pytest.mark.parametrize(
    "name",
    [
        "prefix/lib/python3.11/json/__init__.py",
        "packages/numpy/__init__.py",
        "executor/workers/executor/__main__.py",
        "python",
    ],
)
def test_a_changed_file_changes_the_digest(tmp_path: Path, digest: Callable[[], str], name: str) -> None:
    before = digest()
    assert digest() == before
    with (tmp_path / name).open("ab") as file:
        file.write(b"\n")
    assert digest() != before


def test_a_renamed_and_an_added_file_change_the_digest(tmp_path: Path, digest: Callable[[], str]) -> None:
    before = digest()
    (tmp_path / "packages/numpy/__init__.py").rename(tmp_path / "packages/numpy/other.py")
    renamed = digest()
    (tmp_path / "packages/numpy/__init__.py").touch()
    assert len({before, renamed, digest()}) == 3


def test_what_sandboxes_do_not_read_is_left_out(tmp_path: Path, digest: Callable[[], str]) -> None:
    before = digest()
    (tmp_path / "packages/numpy/__pycache__/__init__.cpython-311.pyc").write_text("compiled again")
    (tmp_path / "prefix/lib/python3.11/site-packages/seen.py").unlink()
    assert digest() == before


def test_a_library_of_the_python_is_part_of_the_digest(tmp_path: Path, digest: Callable[[], str]) -> None:
    before = digest()
    # Nearer than the host's own libc.
    (tmp_path / "prefix/lib/libc.so.6").write_text("another libc")
    assert digest() != before


def test_the_libraries_found_are_those_the_loader_finds() -> None:
    extensions = sorted(
        (Path(sys.base_prefix) / "lib" / f"python3.{sys.version_info.minor}" / "lib-dynload").glob("*.so")
    )
    binaries = [PYTHON, *extensions]
    answers = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=True).stdout
    lines = re.findall(r"^\s+(\S+) => (/\S+)", answers, re.MULTILINE)
    loaded = {Path(name).name: Path(path).resolve() for name, path in lines}
    found = host_libraries(binaries, (Path(sys.base_prefix) / "lib", *LIBRARY_FOLDERS))
    assert "libc.so.6" in loaded
    assert {name: found.get(name) for name in loaded} == loaded
    # The loader itself has no arrow in ldd's answer.
    assert {name for name in found.keys() - loaded.keys() if not name.startswith("ld-linux")} == set()


def test_a_file_that_is_no_library_needs_none(tmp_path: Path) -> None:
    (tmp_path / "script.so").write_text("INPUT(-lc)")
    (tmp_path / "cut.so").write_bytes(PYTHON.read_bytes()[:100])
    (tmp_path / "empty.so").touch()
    assert [needed(path) for path in sorted(tmp_path.iterdir())] == [[], [], []]
