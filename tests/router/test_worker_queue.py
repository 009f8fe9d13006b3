"""Whatever lies on a worker's own queue: the Celery worker goes on, and keeps it for people to see."""

import json
import queue
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery, Task
from celery.contrib.testing.worker import start_worker
from celery.result import AsyncResult
from redis import Redis
from router_cluster import Client, Worker, eventually, header, message
from test_garbage import BAD_MESSAGES, NOT_MESSAGES

from readie.protocol import keys
from readie.protocol.call import CallHeader
from readie.protocol.explain import ExplainRequest
from workers.app import app as product

NAME = "celery@test"
QUEUE = keys.worker_queue(NAME)


@pytest.fixture
def received() -> "queue.Queue[CallHeader]":
    """The calls that the worker's task was run for."""
    return queue.Queue()


@pytest.fixture
def app(redis_url: str, received: "queue.Queue[CallHeader]") -> Iterator[Celery]:
    """A Celery app with the product's own settings and a worker on its direct queue."""
    app = Celery("test", broker=redis_url, backend=redis_url, set_as_current=False)
    app.conf.update(
        {name: product.conf[name] for name in product.conf.changes if not name.endswith(("_url", "backend"))}
    )

    def execute(self: Task, argument: str | None) -> None:
        received.put(CallHeader.model_validate(self.request.readie))

    app.task(bind=True, name=keys.TASK_NAME, ignore_result=True, shared=False)(execute)
    with start_worker(
        app,
        pool="solo",
        perform_ping_check=False,
        shutdown_timeout=20,
        hostname=NAME,
        exclude_queues=[keys.SUBMIT_QUEUE],
    ):
        yield app


@pytest.fixture
def worker(new_worker: Callable[..., Worker], app: Celery) -> Worker:
    """The Celery worker's entry, as routers see it."""
    return new_worker(NAME, slots=100).announce()


def spoiled_messages() -> Iterator[bytes]:
    for number, spoil in enumerate(BAD_MESSAGES.values()):
        content = json.loads(message(header(f"spoiled{number}")))
        spoil(content)
        yield json.dumps(content).encode()


@pytest.mark.usefixtures("router", "worker")
def test_a_worker_outlives_whatever_is_on_its_queue(
    client: Client, redis: Redis, received: "queue.Queue[CallHeader]"
) -> None:
    question = ExplainRequest(task=keys.EXPLAIN_TASK, id="q", header=header("c")).model_dump_json().encode()
    garbage = [*NOT_MESSAGES.values(), *spoiled_messages(), question]
    for number, item in enumerate(garbage):
        redis.lpush(QUEUE, item)
        client.submit(header(f"c{number}"))
        assert received.get(timeout=30).id == f"c{number}", item[:200]
    letters = client.dead_letters()
    assert len(letters) == len(garbage)
    assert {letter["queue"] for letter in letters} == {QUEUE}
    assert all(letter["reason"] for letter in letters)
    assert received.empty()


@pytest.mark.usefixtures("router", "worker")
def test_garbage_at_once_and_in_numbers_holds_up_no_call(
    client: Client, redis: Redis, received: "queue.Queue[CallHeader]"
) -> None:
    redis.lpush(QUEUE, *(f"garbage {number}" for number in range(500)))
    client.submit(header("c"))
    assert received.get(timeout=60).id == "c"
    assert len(client.dead_letters()) == 500


@pytest.mark.usefixtures("worker")
def test_a_forged_result_of_a_task_that_is_not_there_is_not_written(client: Client, redis: Redis, app: Celery) -> None:
    content: dict[str, Any] = json.loads(message(header("c")))
    content["headers"]["task"] = "not.there"
    redis.lpush(QUEUE, json.dumps(content))
    eventually(client.dead_letters, "the dead letter")
    assert AsyncResult("c", app=app).state == "PENDING"


@pytest.mark.usefixtures("worker")
def test_celerys_remote_control_works_on_this_transport(app: Celery) -> None:
    answers = eventually(lambda: app.control.inspect(timeout=1).ping(), "an answer")
    assert answers == {NAME: {"ok": "pong"}}
