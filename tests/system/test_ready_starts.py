"""Calls meet sandboxes that are ready, and the router knows."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from readie.client import Client
from readie.hints import Hints
from readie.options import Options
from readie.protocol.envelope import Report
from tests.conftest import ROOT
from tests.local_stack import LocalStack, eventually, ready


@pytest.fixture(scope="module")
def stack(unasked_stack: LocalStack) -> LocalStack:
    return unasked_stack


def call(client: Client, checkpoint_id: str) -> tuple[object, Report]:
    """Run a function that returns 7 in a sandbox of a checkpoint."""
    call = client.submit(lambda: 7, (), {}, Options(checkpoint_id=checkpoint_id), lambda: Hints(()))
    return call.result(timeout=60), call.report()


@pytest.fixture
def client(stack: LocalStack) -> Iterator[Client]:
    client = Client(redis_url=stack.redis_url)
    yield client
    client.close()


def test_a_call_meets_a_ready_sandbox_and_reports_it(stack: LocalStack, client: Client) -> None:
    # Nothing has taken one yet: what the worker tells a moment after a call may still count the one that it took.
    eventually(lambda: ready(stack).get("checkpoint_1"), "the worker tells that one is ready")
    value, report = call(client, "checkpoint_1")
    assert value == 7
    assert (report.start, report.checkpoint_id, report.pool) == ("restored", "checkpoint_1", "ready")
    assert set(report.phases) >= {"sandbox", "start", "connect"}
    assert sum(report.phases[name] for name in ("sandbox", "start", "connect")) < report.total_seconds / 2
    eventually(lambda: ready(stack).get("checkpoint_1"), "it is replaced")


def test_a_burst_of_calls_is_served_whatever_is_ready(stack: LocalStack, client: Client) -> None:
    with ThreadPoolExecutor(25) as pool:
        ended = list(pool.map(lambda _: call(client, "checkpoint_1"), range(25)))
    assert [value for value, _ in ended] == [7] * 25
    assert {report.start for _, report in ended} == {"restored"}
    assert {report.pool for _, report in ended} <= {"ready", "created", "none"}


def test_without_memory_for_ready_ones_calls_meet_created_sandboxes(tmp_path: Path, data_folder: Path) -> None:
    stack = LocalStack(tmp_path / "home")
    stack.environment |= {"READIE_DATA": str(data_folder), "READIE_READY_MEMORY_BYTES": "0"}
    stack.environment["READIE_CREATED_SANDBOXES"] = "1"
    stack.up("--slots", "1")
    client = Client(redis_url=stack.redis_url)
    try:
        pools = {call(client, "checkpoint_0")[1].pool for _ in range(6)}
        assert "created" in pools
        assert "ready" not in pools
        assert ready(stack) == {}
    finally:
        client.close()
        stack.down()


def test_a_worker_is_as_clean_after_many_calls_as_after_a_few(data_folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.soak", "--calls", "66", "--first", "22"],
        cwd=ROOT,
        env={**os.environ, "READIE_DATA": str(data_folder)},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
