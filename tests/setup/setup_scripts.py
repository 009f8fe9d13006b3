"""Run the set-up scripts as a user runs them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

GetRunsc = Callable[..., subprocess.CompletedProcess[str]]


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command with this process's environment, changed as given."""
    return subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


def last_line(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()[-1]


def write_program(file: Path, text: str) -> Path:
    file.write_text(text)
    file.chmod(0o755)
    return file
