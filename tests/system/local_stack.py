"""A local stack of a test's own, driven through the command line as a user would."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent


class Stack:
    """A local stack with a home of its own, driven through the command line as a user would."""

    def __init__(self, home: Path, data: Path) -> None:
        self.home = home
        self.run_folder = Path("/run/readie") / hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:8]
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("READIE_")},
            "READIE_HOME": str(home),
            "READIE_DATA": str(data),
        }

    def run(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run ``readie`` and return what it printed."""
        return subprocess.run(
            [str(BIN / "readie"), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def up(self, *arguments: str) -> None:
        """Start it."""
        done = self.run("up", "-d", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr

    def down(self) -> None:
        """Stop it."""
        done = self.run("down")
        assert done.returncode == 0, done.stdout + done.stderr

    def status(self) -> dict[str, Any]:
        """Return ``readie status --json``."""
        done = self.run("status", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        status: dict[str, Any] = json.loads(done.stdout)
        return status

    @property
    def redis_url(self) -> str:
        """URL of its Redis."""
        return str(json.loads((self.home / "stack.json").read_text())["redis_url"])

    def worker_log(self) -> str:
        """Return what its workers logged."""
        return "".join(path.read_text() for path in sorted((self.home / "logs").glob("worker*.log")))
