"""A generation belongs to the network mode in which it was captured."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.conftest import Workbench
from workers.control import RunningCall
from workers.sandbox.runsc import Runsc, find_runsc
from workers.serving import Serving
from workers.settings import WorkerSettings

pytestmark = pytest.mark.sandbox


@contextlib.contextmanager
def serving(workbench: Workbench, run: Path, **settings: Any) -> Iterator[Serving]:
    """Serve the flavor as a worker does."""
    all_settings = WorkerSettings(
        data=workbench.data, flavor="tiny", run=run, created_sandboxes=0, ready_memory_bytes=0, **settings
    )
    served = Serving(all_settings, Runsc(find_runsc()), run)
    try:
        yield served
    finally:
        served.close()


def test_a_generation_with_a_network_serves_workers_with_one(
    workbench: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    if Runsc(find_runsc()).version.startswith("0.0~"):
        pytest.skip("this runsc can give sandboxes no network")
    workbench.plan(["json"])
    made = workbench.make(SANDBOX_NETWORK="sandbox")
    run = Path("/run/readie-networked")

    with serving(workbench, run, sandbox_network="sandbox") as networked, networked.use() as stage:
        assert networked.served.generation_id == made["generation"]
        started = stage.supply.start("checkpoint_1", RunningCall("c1", 1), lambda _: None)
        stage.supply.discard(started)
        assert (started.start, started.fallback) == ("restored", None)

    with caplog.at_level(logging.ERROR), serving(workbench, run) as without:
        assert without.served.generation_id is None
    assert "start the worker with SANDBOX_NETWORK=sandbox" in caplog.text

    with serving(workbench, run, sandbox_network="host", allow_host_network=True) as of_host, of_host.use() as stage:
        started = stage.supply.start(None, RunningCall("c2", 1), lambda _: None)
        stage.supply.discard(started)
        assert (of_host.served.generation_id, started.start) == (None, "cold")


@pytest.mark.parametrize(
    ("environment", "status", "hint"),
    [
        ({"SANDBOX_NETWORK": "host"}, 2, "READIE_ALLOW_HOST_NETWORK"),
        ({"SANDBOX_NETWORK": "host", "READIE_ALLOW_HOST_NETWORK": "true"}, 2, "can't checkpoint"),
    ],
)
def test_nothing_is_captured_in_the_hosts_network(
    workbench: Workbench, environment: dict[str, str], status: int, hint: str
) -> None:
    code, said = workbench.fail(**environment)
    assert code == status
    assert hint in said
