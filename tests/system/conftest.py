"""The whole product, running: a generation of the default flavor and a local stack, both of this checkout."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import readie
from tests.conftest import ROOT
from tests.system.local_stack import Stack


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs sandboxes."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.sandbox)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Flavor and generation, built from this checkout; reused by later runs that change nothing."""
    data = ROOT / ".cache" / "test-data"
    environment = {**os.environ, "READIE_DATA": str(data)}
    subprocess.run([sys.executable, "-m", "workers.pipeline"], env=environment, check=True, timeout=900, cwd=ROOT)
    return data


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, data_folder: Path) -> Iterator[Stack]:
    """A running stack with one worker, which this process's default client uses."""
    stack = Stack(tmp_path_factory.mktemp("home"), data_folder)
    stack.up("--workers", "1", "--slots", "4")
    readie.configure(redis_url=stack.redis_url)
    yield stack
    stack.down()
