"""A real Celery worker reads what a router sends on, and Celery's own tools see the call."""

import queue
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from celery import Celery, Task
from celery.contrib.testing.worker import start_worker
from celery.result import AsyncResult
from kombu import Consumer
from router_cluster import PYTHON, Client, Worker, eventually, header

from readie.protocol import keys, task
from readie.protocol.call import CallHeader
from readie.protocol.envelope import CallState, Envelope

NAME = "celery@test"


@pytest.fixture
def requests() -> "queue.Queue[dict[str, Any]]":
    """What the task saw of each of its calls."""
    return queue.Queue()


@pytest.fixture
def app(redis_url: str, requests: "queue.Queue[dict[str, Any]]") -> Iterator[Celery]:
    """A Celery app with a worker on its direct queue, as the product's own is set up."""
    app = Celery("test", broker=redis_url, backend=redis_url, set_as_current=False)
    app.conf.update(
        worker_direct=True,
        task_default_queue=keys.SUBMIT_QUEUE,
        accept_content=["json"],
        broker_transport_options={"priority_steps": [0]},
    )

    def execute(self: Task, argument: str | None) -> None:
        requests.put({"argument": task.decode_argument(argument), **self.request.__dict__})

    app.task(bind=True, name=keys.TASK_NAME, ignore_result=True, shared=False)(execute)
    with start_worker(
        app,
        pool="solo",
        perform_ping_check=False,
        shutdown_timeout=20,
        task_events=True,
        hostname=NAME,
        exclude_queues=[keys.SUBMIT_QUEUE],
    ):
        yield app


@pytest.fixture
def worker(new_worker: Callable[..., Worker], app: Celery) -> Worker:
    """The Celery worker's entry, as routers see it."""
    return new_worker(NAME).announce()


@pytest.mark.usefixtures("router", "worker")
def test_a_celery_worker_runs_the_task_with_payload_and_placement(
    client: Client, requests: "queue.Queue[dict[str, Any]]"
) -> None:
    sent = client.sent(header("c", imports=["numpy"]))
    sent["headers"]["stamps"] = {"session": ["s1"]}
    sent["headers"]["stamped_headers"] = ["session"]
    client.submit_message("c", sent)
    request = requests.get(timeout=30)
    assert request["argument"] == b"payload"
    assert request["id"] == request["root_id"] == request["correlation_id"] == "c"
    assert request["shadow"] == "module.function"
    assert request["stamps"] == {"session": ["s1"]}
    assert request["delivery_info"]["routing_key"] == keys.worker_queue(NAME)
    call = CallHeader.model_validate(request["readie"])
    assert call.python == PYTHON
    assert call.hints.imports == ("numpy",)
    assert call.placement is not None
    assert call.placement.worker == NAME
    assert client.ledger.claim(call) is not None


@pytest.mark.usefixtures("router", "worker")
def test_celerys_events_tell_of_the_call_under_the_functions_name(client: Client, app: Celery) -> None:
    seen: list[dict[str, Any]] = []
    with app.connection() as connection, connection.channel() as channel:
        receiver = app.events.Receiver(channel, handlers={"task-received": seen.append})
        (consumer,) = receiver.get_consumers(partial(Consumer, channel), channel)
        with consumer:
            client.submit(header("c"))
            while not seen:
                connection.drain_events(timeout=30)
    assert seen[0]["uuid"] == "c"
    assert seen[0]["name"] == "module.function"
    assert seen[0]["args"] == "<7 bytes>"


@pytest.mark.usefixtures("router", "worker")
def test_celerys_result_is_that_of_the_ledger(
    client: Client, app: Celery, requests: "queue.Queue[dict[str, Any]]"
) -> None:
    client.submit(header("c"))
    call = CallHeader.model_validate(requests.get(timeout=30)["readie"])
    client.ledger.claim(call)
    client.ledger.finish(Envelope(id="c", state=CallState.DONE), attempt=1, keep_seconds=60)
    assert AsyncResult("c", app=app).get(timeout=30)["state"] == "done"


@pytest.mark.usefixtures("router", "worker")
def test_a_refused_call_is_a_failure_to_celery_too(client: Client, app: Celery) -> None:
    client.submit(header("c", python="3.9"))
    result = AsyncResult("c", app=app)
    eventually(result.ready, "the result")
    assert result.state == "FAILURE"
    assert "3.9" in str(result.result)
