from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from setup_scripts import ROOT, SYSTEM_PATH, run

NOT_COPIED = shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout, set up with what needs no root."""
    copy = tmp_path_factory.mktemp("checkout") / "readie"
    shutil.copytree(ROOT, copy, ignore=NOT_COPIED)
    result = set_up(copy, "python", "redis")
    assert result.returncode == 0, result.stderr
    return copy


def set_up(checkout: Path, *parts: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run(checkout / "scripts" / "setup", *parts, **environment)


def state_of(folder: Path) -> dict[Path, int]:
    return {file: file.lstat().st_mtime_ns for file in folder.rglob("*") if "__pycache__" not in file.parts}


def test_the_packages_and_the_project_can_be_imported(checkout: Path) -> None:
    where = "import celery, redis, readie, router, workers; print(readie.__file__)"
    result = run(checkout / ".venv" / "bin" / "python", "-P", "-c", where)
    assert result.stdout.strip() == str(checkout / "readie" / "__init__.py"), result.stderr


def test_a_second_run_changes_nothing(checkout: Path) -> None:
    before = state_of(checkout / ".venv")
    result = set_up(checkout, "python", "redis")
    assert result.returncode == 0, result.stderr
    assert result.stderr == "setup: done: python redis\n"
    assert state_of(checkout / ".venv") == before


def test_a_changed_lock_is_installed(checkout: Path) -> None:
    with (checkout / "requirements.lock").open("a") as lock:
        lock.write("# changed\n")
    stray = run(checkout / ".venv/bin/uv", "pip", "uninstall", "flower", VIRTUAL_ENV=str(checkout / ".venv"))
    assert stray.returncode == 0, stray.stderr
    result = set_up(checkout, "python")
    assert "installing the packages" in result.stderr
    assert run(checkout / ".venv/bin/python", "-c", "import flower").returncode == 0


def test_a_link_made_with_the_environment_on_path_leads_out_of_it(checkout: Path) -> None:
    (checkout / ".venv" / "setup" / "redis-server").unlink()
    result = set_up(checkout, "redis", PATH=f"{checkout / '.venv' / 'bin'}:{SYSTEM_PATH}")
    assert result.returncode == 0, result.stderr
    link = checkout / ".venv" / "bin" / "redis-server"
    assert checkout not in link.resolve(strict=True).parents
    assert run(link, "--version").stdout.startswith("Redis server v=")


def test_a_link_to_a_program_that_is_gone_is_made_anew(checkout: Path) -> None:
    link = checkout / ".venv" / "bin" / "redis-server"
    link.unlink()
    link.symlink_to(checkout / "gone")
    assert set_up(checkout, "redis").returncode == 0
    assert run(link, "--version").stdout.startswith("Redis server v=")


@pytest.mark.sandbox
def test_runsc_is_linked_beside_python(checkout: Path, good_runsc: Path) -> None:
    result = set_up(checkout, "runsc")
    assert result.returncode == 0, result.stderr
    assert (checkout / ".venv" / "bin" / "runsc").resolve() == good_runsc
    assert set_up(checkout, "runsc").stderr == "setup: done: runsc\n"


def test_an_interpreter_that_is_too_old_is_named(checkout: Path, tmp_path: Path) -> None:
    old = tmp_path / "python3.9"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    result = set_up(checkout, "python", PYTHON=str(old))
    assert result.returncode == 1
    assert f"{old} is no Python 3.11 or newer" in result.stderr
    assert (checkout / ".venv" / "bin" / "python").exists()


def test_an_unknown_part_is_an_error_that_lists_the_parts(checkout: Path) -> None:
    result = set_up(checkout, "pyhton")
    assert result.returncode == 1
    assert "the parts are python, redis and runsc" in result.stderr
