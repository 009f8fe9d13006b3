"""The message a client builds by hand is what Celery would send, and what Celery's own consumer reads."""

import base64
import json

import kombu
from celery import Celery
from celery.contrib.testing.worker import start_worker
from redis import Redis

from readie.protocol import keys, task
from readie.protocol.call import CallHeader


def header() -> CallHeader:
    return CallHeader(
        protocol=1, id="a1b2", name="module.function", python="3.11", payload_bytes=3, payload_by_reference=False
    )


def celery_app(url: str) -> Celery:
    app = Celery("test", broker=url, backend=url)
    app.conf.update(task_default_queue=keys.SUBMIT_QUEUE, task_ignore_result=True, worker_hijack_root_logger=False)
    return app


def test_it_has_the_headers_and_properties_that_celery_writes(redis: Redis, redis_url: str) -> None:
    celery_app(redis_url).send_task(keys.TASK_NAME, args=["eHl6"], task_id="a1b2", ignore_result=True)
    theirs = json.loads(redis.rpop(keys.SUBMIT_QUEUE))
    ours = json.loads(task.encode(header(), task.encode_body(b"xyz"), "client"))
    assert ours["headers"].keys() - theirs["headers"].keys() == {task.HEADER}
    assert theirs["headers"].keys() <= ours["headers"].keys()
    assert ours["properties"].keys() == theirs["properties"].keys()
    assert json.loads(base64.b64decode(ours["body"])) == json.loads(base64.b64decode(theirs["body"]))
    assert {name: ours[name] for name in ("content-encoding", "content-type")} == {
        name: theirs[name] for name in ("content-encoding", "content-type")
    }
    same = ("lang", "task", "id", "root_id", "parent_id", "retries", "timelimit", "eta", "expires", "ignore_result")
    assert {name: ours["headers"][name] for name in same} == {name: theirs["headers"][name] for name in same}


def test_a_celery_worker_runs_it_with_header_and_argument(redis: Redis, redis_url: str) -> None:
    app = celery_app(redis_url)
    seen: list[tuple[object, object]] = []

    @app.task(bind=True, name=keys.TASK_NAME, shared=False)
    def execute(self: object, argument: str) -> None:
        seen.append((self.request.headers, argument))  # type: ignore[attr-defined]
        redis.lpush("seen", "1")

    redis.lpush(keys.SUBMIT_QUEUE, task.encode(header(), task.encode_body(b"xyz"), "client"))
    with start_worker(app, pool="threads", concurrency=1, perform_ping_check=False, queues=[keys.SUBMIT_QUEUE]):
        assert redis.blpop(["seen"], timeout=20)
    headers, argument = seen[0]
    assert isinstance(headers, dict)
    assert CallHeader.model_validate(headers[task.HEADER]) == header()
    assert isinstance(argument, str)
    assert task.decode_argument(argument) == b"xyz"


def test_no_payload_is_no_argument() -> None:
    body = json.loads(base64.b64decode(task.encode_body(None)))
    assert body[0] == [None]
    assert task.decode_argument(None) is None


def test_kombu_is_the_version_the_format_was_taken_from() -> None:
    assert kombu.VERSION[:2] == (5, 7)
