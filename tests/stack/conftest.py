"""Fixtures of the tests of local stacks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local_stack import LocalStack


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[LocalStack]:
    """Return a home in which nothing runs, nor will after the test."""
    stack = LocalStack(tmp_path / "home")
    yield stack
    if (stack.home / "stack.json").exists():
        stack.run("down")
    assert stack.processes() == []
