from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from setup_scripts import SCRIPTS, SYSTEM_PATH, GetRunsc, last_line, run


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """An empty folder, first on the PATH of `get_runsc`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


@pytest.fixture
def get_runsc(tmp_path: Path, bin_folder: Path) -> GetRunsc:
    """get-runsc with an empty cache and its own folder for temporary files, `tmp_path / "tmp"`."""
    (tmp_path / "tmp").mkdir()

    def call(
        *arguments: str | Path, prefix: tuple[str, ...] = (), **environment: str
    ) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{bin_folder}:{SYSTEM_PATH}",
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "TMPDIR": str(tmp_path / "tmp"),
            **environment,
        }
        return run(*prefix, sys.executable, SCRIPTS / "get-runsc", *arguments, **environment)

    return call


@pytest.fixture(scope="session")
def good_runsc() -> Path:
    """The runsc that `make setup` takes on this machine."""
    return Path(last_line(run(SCRIPTS / "get-runsc")))
