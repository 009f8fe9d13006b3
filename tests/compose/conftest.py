"""One deployment for all tests, which go through its life in order."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from compose_project import Project

from tests.local_stack import eventually


@pytest.fixture(scope="session")
def project() -> Iterator[Project]:
    """Two workers and two routers, of this checkout; gone afterwards with all that they wrote."""
    engine = subprocess.run(["docker", "info"], capture_output=True, text=True, check=False)
    assert engine.returncode == 0, f"these tests need a Docker Engine (DOCKER_HOST names another): {engine.stderr}"
    project = Project()
    try:
        project.compose("up", "--detach", "--build", "--scale", "worker=2", "--scale", "router=2")
        eventually(lambda: all(map(project.healthy, ("redis", "router", "worker"))), "they are healthy")
        yield project
    finally:
        logs = project.compose("logs", "--no-color")
        project.compose("--profile", "client", "down", "--volumes", "--remove-orphans", "--timeout", "30")
        sys.stdout.write(logs)
