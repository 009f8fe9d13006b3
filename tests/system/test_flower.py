"""Flower on a running stack, as a person and as Celery's own commands see it."""

from __future__ import annotations

import base64
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import readie
from readie import CallCancelledError, remote
from readie.protocol.envelope import CallState
from readie.stack.programs import free_port
from tests.browser import Browser
from tests.local_stack import BIN, LocalStack, default_client_of, eventually

SECRET = "argument that nobody else may see"


@remote
def total(values: list[float], note: str) -> float:
    import pandas as pd

    return float(pd.Series(values).sum())


@remote
def break_down(note: str) -> None:
    raise ArithmeticError("the user's own error")


@remote
def never_ends(note: str) -> None:
    import time

    time.sleep(1000)


class FlowerStack:
    """A stack with Flower, and what Flower answers."""

    def __init__(self, stack: LocalStack, port: int) -> None:
        self.stack = stack
        self.url = f"http://127.0.0.1:{port}"
        self.password = (stack.home / "flower-password").read_text()
        self.client = readie.Client(redis_url=stack.redis_url)

    def get(self, path: str) -> str:
        """Return a page."""
        token = base64.b64encode(f"readie:{self.password}".encode()).decode()
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Basic {token}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(answer.read().decode())

    def task(self, call: readie.Call[Any], state: str) -> dict[str, Any]:
        """Return what Flower's API tells of a call, once it is in a state."""

        def look() -> dict[str, Any] | None:
            task: dict[str, Any] | None = json.loads(self.get("/api/tasks")).get(call.id)
            return task if task and task["state"] == state else None

        found: dict[str, Any] = eventually(look, f"{call.id} is {state} in Flower", seconds=30)
        return found

    def celery(self, *arguments: str) -> str:
        """Return what a command of Celery's prints."""
        done = subprocess.run(
            [BIN / "celery", "--app", "workers.app", *arguments],
            env={**self.stack.environment, "READIE_REDIS_URL": self.stack.redis_url},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory, data_folder: Path) -> Iterator[FlowerStack]:
    """A stack with one worker and Flower."""
    stack = LocalStack(tmp_path_factory.mktemp("home"))
    stack.environment["READIE_DATA"] = str(data_folder)
    port = free_port()
    stack.up("--flower", "--flower-port", str(port))
    with default_client_of(stack):
        yield FlowerStack(stack, port)
    stack.down()


@pytest.fixture
def browser(tmp_path: Path, flower: FlowerStack) -> Iterator[Browser]:
    """A browser whose user knows Flower's password."""
    browser = Browser(tmp_path)
    browser.log_in("readie", flower.password)
    yield browser
    browser.close()


def test_it_is_a_part_of_the_stack_behind_a_password(flower: FlowerStack) -> None:
    parts = flower.stack.status()["stack"]["parts"]
    assert [part["running"] for part in parts if part["role"] == "flower"] == [True]
    assert (flower.stack.home / "flower-password").stat().st_mode & 0o077 == 0
    for path in ("/", "/tasks", "/api/tasks"):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(flower.url + path, timeout=10)
    assert "Workers" in flower.get("/")


def test_a_person_finds_a_call_in_the_list_and_opens_it(flower: FlowerStack, browser: Browser) -> None:
    call = total.spawn([1.0, 2.0], SECRET)
    assert call.result(timeout=60) == 3.0
    flower.task(call, "SUCCESS")
    browser.open(f"{flower.url}/tasks")
    row = browser.text(f"#tasks-table tbody tr:has(a[href$='{call.id}'])")
    assert "total" in row
    assert "SUCCESS" in row
    assert call.report().worker in row
    assert call.report().start in row
    browser.click(f"#tasks-table a[href$='{call.id}']")
    page = browser.text("#task-page")
    assert call.id in page
    assert "total" in page
    assert "Runtime" in page
    assert SECRET not in page


def test_a_failed_call_shows_the_users_exception_and_traceback(flower: FlowerStack, browser: Browser) -> None:
    call = break_down.spawn(SECRET)
    with pytest.raises(ArithmeticError):
        call.result(timeout=60)
    task = flower.task(call, "FAILURE")
    assert task["exception"] == "ArithmeticError: the user's own error"
    browser.open(f"{flower.url}/task/{call.id}")
    page = browser.text("#task-page")
    assert "ArithmeticError: the user's own error" in page
    assert "in break_down" in page
    assert "workers/" not in page, "nothing of the worker's own code"
    assert SECRET not in page


def test_the_button_that_ends_a_task_cancels_the_call(flower: FlowerStack, browser: Browser) -> None:
    call = never_ends.spawn(SECRET)
    flower.task(call, "STARTED")
    browser.open(f"{flower.url}/task/{call.id}")
    browser.click("#task-terminate")
    with pytest.raises(CallCancelledError):
        call.result(timeout=60)
    assert call.status().state is CallState.CANCELLED
    flower.task(call, "REVOKED")


def test_a_workers_page_shows_its_checkpoints_and_pools(flower: FlowerStack) -> None:
    (name,) = json.loads(flower.celery("inspect", "checkpoints", "--json"))
    page = flower.get(f"/worker/{name}")
    for text in ("checkpoint_1: numpy, pandas", "ready sandboxes", "busy sandboxes"):
        assert text in page


def test_celery_tells_which_sandbox_serves_which_call_and_never_arguments(flower: FlowerStack) -> None:
    call = never_ends.spawn(SECRET)
    flower.task(call, "STARTED")
    (sandboxes,) = json.loads(flower.celery("inspect", "sandboxes", "--json")).values()
    assert [one["call"] for one in sandboxes if one["state"] == "busy"] == [call.id]
    (pools,) = json.loads(flower.celery("inspect", "pools", "--json")).values()
    assert pools["busy"] == 1
    (active,) = json.loads(flower.celery("inspect", "active", "--json")).values()
    assert [task["id"] for task in active] == [call.id]
    assert active[0]["name"] == "never_ends"
    assert active[0]["args"].endswith("bytes>")
    assert call.cancel()


def test_celery_tells_of_a_sessions_sandbox_between_its_calls(flower: FlowerStack) -> None:
    with readie.session() as session:
        assert total.options(session=session)([1.0], SECRET) == 1.0

        def idle() -> list[Any]:
            (sandboxes,) = json.loads(flower.celery("inspect", "sandboxes", "--json")).values()
            return [one["session"] for one in sandboxes if one["state"] == "idle"]

        assert eventually(idle, "the call has ended there too") == [session.id]
