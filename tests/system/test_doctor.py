"""``readie doctor`` looks at a machine and says how to mend what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RedisServer
from tests.local_stack import LocalStack


def doctor(stack: LocalStack, **environment: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit status and the checks by name."""
    before = dict(stack.environment)
    stack.environment |= environment
    try:
        done = stack.run("doctor", "--json")
    finally:
        stack.environment = before
    return done.returncode, {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def test_a_machine_that_works_is_said_to_work(stack: LocalStack) -> None:
    status, checks = doctor(stack)
    assert {name: check for name, check in checks.items() if check["state"] != "ok"} == {}
    assert status == 0
    assert checks.keys() >= {
        "redis",
        "redis persistence",
        "runsc",
        "limits",
        "flavor",
        "generation",
        "sandboxes",
        "disk",
    }
    assert "checkpoint_0 restored" in checks["sandboxes"]["found"]
    assert not list(stack.run_folder.parent.glob("doctor-*"))


def test_every_problem_has_a_remedy(stack: LocalStack, tmp_path: Path) -> None:
    status, checks = doctor(stack, READIE_RUNSC="/nowhere/runsc", READIE_REDIS_URL="redis://127.0.0.1:1/0")
    assert status == 1
    assert "/nowhere/runsc" in checks["machine"]["found"]
    assert "scripts/get-runsc" in checks["machine"]["fix"]
    assert "READIE_REDIS_URL" in checks["redis"]["fix"]

    status, checks = doctor(stack, READIE_DATA=str(tmp_path))
    assert (status, checks["flavor"]["state"]) == (1, "problem")
    assert "make generation" in checks["flavor"]["fix"]

    status, checks = doctor(stack, SANDBOX_OVERLAY="none")
    assert (status, checks["generation"]["state"]) == (3, "warning")


@pytest.mark.parametrize(("policy", "state"), [("allkeys-lru", "problem"), ("volatile-lru", "warning")])
def test_a_redis_that_forgets_is_found_out(stack: LocalStack, tmp_path: Path, policy: str, state: str) -> None:
    redis = RedisServer(tmp_path, "--appendonly", "no", "--maxmemory", "50mb", "--maxmemory-policy", policy)
    redis.start()
    try:
        _, checks = doctor(stack, READIE_REDIS_URL=redis.url, READIE_RUNSC="/nowhere/runsc")
    finally:
        redis.stop()
    assert (checks["redis persistence"]["state"], checks["redis memory"]["state"]) == ("warning", state)
    assert "noeviction" in checks["redis memory"]["fix"]
