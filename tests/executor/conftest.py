from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from executor_process import Executor

from workers.sandbox.connection import ExecutorConnection


@pytest.fixture
def control(tmp_path: Path) -> Path:
    folder = tmp_path / "control"
    folder.mkdir()
    return folder


@pytest.fixture
def run_executor(control: Path) -> Iterator[Callable[..., Executor]]:
    with contextlib.ExitStack() as stack:

        def run(*module_dirs: Path) -> Executor:
            executor = Executor(control, *module_dirs)
            stack.callback(executor.close)
            return executor

        yield run


@pytest.fixture
def connection(control: Path, run_executor: Callable[..., Executor]) -> Iterator[ExecutorConnection]:
    (control / "go").write_text("started")
    connected = run_executor().connect()
    yield connected
    connected.close()
