"""A cluster as commands see it: a Redis with calls, workers, sessions and checkpoints of long names in it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_cluster import Cluster, Run
from redis import Redis


@pytest.fixture
def environment(redis_url: str, tmp_path: Path) -> dict[str, str]:
    """Of commands that look at the test's Redis."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("READIE_", "COLUMNS"))}
    data = {"READIE_HOME": str(tmp_path / "home"), "READIE_DATA": str(tmp_path / "data")}
    return {**kept, **data, "READIE_REDIS_URL": redis_url}


@pytest.fixture
def cluster(redis: Redis) -> Cluster:
    return Cluster(redis)


@pytest.fixture
def run(environment: dict[str, str]) -> Run:
    """Run a command, its output into pipes; never a traceback."""

    def run_readie(*arguments: str, **changed: Any) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [sys.executable, "-m", "readie", *arguments],
            env={**environment, "COLUMNS": "80", **changed},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run_readie
