"""The whole product, running: a generation of the default flavor and a local stack, both of this checkout."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import readie
from tests.local_stack import LocalStack, default_client_of


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs sandboxes."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.sandbox)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, data_folder: Path) -> Iterator[LocalStack]:
    """A running stack with one worker, which this process's default client uses."""
    stack = _up(tmp_path_factory, data_folder)
    readie.configure(redis_url=stack.redis_url)
    yield stack
    stack.down()


@pytest.fixture(scope="module")
def unasked_stack(tmp_path_factory: pytest.TempPathFactory, data_folder: Path) -> Iterator[LocalStack]:
    """Another one, for a module that looks at what is ready: where calls came in bursts before, that is for bursts."""
    stack = _up(tmp_path_factory, data_folder)
    with default_client_of(stack):
        yield stack
    stack.down()


def _up(tmp_path_factory: pytest.TempPathFactory, data_folder: Path) -> LocalStack:
    stack = LocalStack(tmp_path_factory.mktemp("home"))
    stack.environment["READIE_DATA"] = str(data_folder)
    stack.environment["SECRET"] = "of the worker"
    stack.up("--workers", "1", "--slots", "4")
    return stack
