"""The whole product, running: a generation of the default flavor and a local stack, both of this checkout."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import readie
from tests.local_stack import LocalStack


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs sandboxes."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.sandbox)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, data_folder: Path) -> Iterator[LocalStack]:
    """A running stack with one worker, which this process's default client uses."""
    stack = LocalStack(tmp_path_factory.mktemp("home"))
    stack.environment["READIE_DATA"] = str(data_folder)
    stack.environment["SECRET"] = "of the worker"
    stack.up("--workers", "1", "--slots", "4")
    readie.configure(redis_url=stack.redis_url)
    yield stack
    stack.down()
