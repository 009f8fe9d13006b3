"""Whatever is on the submit queue: the router goes on, keeps it for people to see, and tells a caller who is there."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis
from router_cluster import Client, Worker, eventually, header, message

from readie.protocol import keys
from readie.protocol.codes import ErrorCode
from readie.protocol.dead_letter import MOST_DEAD_LETTERS
from readie.protocol.envelope import CallState

NewWorker = Callable[..., Worker]

pytestmark = pytest.mark.usefixtures("router")

NOT_MESSAGES = {
    "empty": b"",
    "not JSON": b"garbage",
    "not text": bytes(range(256)),
    "half a message": message(header("half"))[:200].encode(),
    "null": b"null",
    "number": b"17",
    "huge number": b"9" * 100_000,
    "list": b"[]",
    "empty object": b"{}",
    "deeply nested": b"[" * 100_000,
    "deeply nested object": b'{"headers":' * 50_000,
    "pickle": b"\x80\x04\x95\x0c\x00\x00\x00\x00\x00\x00\x00\x8c\x08builtins\x94.",
    "headers that are no object": b'{"headers": 5, "body": "", "properties": {}}',
    "too large": message(header("large"), b"x" * 300_000).encode(),
    "lone surrogate": json.dumps({"headers": {"task": "\ud800", "id": "\udfff"}}).encode(),
}


@pytest.mark.parametrize("item", NOT_MESSAGES.values(), ids=NOT_MESSAGES)
def test_what_is_not_a_message_becomes_a_dead_letter(
    client: Client, new_worker: NewWorker, redis: Redis, item: bytes
) -> None:
    worker = new_worker().announce()
    redis.lpush(keys.SUBMIT_QUEUE, item)
    client.submit(header("after"))
    assert worker.begin().id == "after"
    client.end_of_queue()
    (letter,) = client.dead_letters()
    assert letter["reason"]
    assert letter["at"] > 0
    assert len(letter["item"]) <= 2000
    if item.isascii():
        assert letter["item"] == item[:2000].decode()


def change(*path: str, to: Any) -> Callable[[dict[str, Any]], None]:
    """Return a change of one field of a message."""

    def apply(content: dict[str, Any]) -> None:
        place: Any = content
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = to

    return apply


def body(content: object) -> str:
    return base64.b64encode(json.dumps(content).encode()).decode()


EMBED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
BAD_MESSAGES = {
    "another task": change("headers", "task", to="celery.backend_cleanup"),
    "no task name": change("headers", "task", to=None),
    "a task name that is no text": change("headers", "task", to={"a": []}),
    "pickle content": change("content-type", to="application/x-python-serialize"),
    "another encoding": change("content-encoding", to="utf-16"),
    "compressed": change("headers", "compression", to="application/x-gzip"),
    "body that is not base64": change("body", to="!"),
    "body that is no text": change("body", to={"a": 1}),
    "no body": change("body", to=None),
    "body of another shape": change("body", to=body(5)),
    "body that is not JSON": change("body", to=base64.b64encode(b'[["a"],{},{"callbacks":null').decode()),
    "body with two arguments": change("body", to=body([["a", "b"], {}, EMBED])),
    "body with keyword arguments": change("body", to=body([["a"], {"b": 1}, EMBED])),
    "body with a callback": change("body", to=body([["a"], {}, EMBED | {"callbacks": [{"task": "x"}]}])),
    "unencoded body": change("properties", "body_encoding", to=None),
    "properties that are no object": change("properties", to=3),
    "no delivery tag": change("properties", to={"body_encoding": "base64"}),
    "no readie header": change("headers", "readie", to=None),
    "newer protocol": change("headers", "readie", "protocol", to=2),
    "unknown option": change("headers", "readie", "options", to={"gpus": 8}),
    "another call's header": change("headers", "readie", "id", to="other"),
    "bad Python version": change("headers", "readie", "python", to="three"),
    "an ETA": change("headers", "eta", to="2100-01-01T00:00:00+00:00"),
    "an expiry": change("headers", "expires", to="2000-01-01T00:00:00+00:00"),
    "a time limit": change("headers", "timelimit", to=[1, 1]),
    "a time limit that is no pair": change("headers", "timelimit", to=5),
    "a shadow that is no text": change("headers", "shadow", to=["a"]),
    "a root that is no text": change("headers", "root_id", to={}),
    "retries that are no number": change("headers", "retries", to="x"),
    "no representation": change("headers", "argsrepr", to=None),
}


@pytest.mark.parametrize("spoil", BAD_MESSAGES.values(), ids=BAD_MESSAGES)
def test_the_caller_of_a_message_that_can_not_be_read_is_told(
    client: Client, new_worker: NewWorker, spoil: Callable[[dict[str, Any]], None]
) -> None:
    worker = new_worker().announce()
    content = client.sent(header("c"))
    spoil(content)
    client.submit_message("c", content)
    client.submit(header("after"))
    assert worker.begin().id == "after"
    end = client.end("c")
    assert end.state is CallState.FAILED
    assert end.failure is not None
    assert end.failure.code is ErrorCode.INVALID_REQUEST
    client.end_of_queue()
    (letter,) = client.dead_letters()
    assert letter["reason"] in end.failure.message
    assert worker.queued() == 0


def test_a_forged_message_with_the_id_of_a_call_does_not_end_it(
    client: Client, new_worker: NewWorker, redis: Redis
) -> None:
    client.submit(header("c"))
    client.waits_for("c", "no worker is running")
    content = client.sent(header("c"))
    content["headers"]["task"] = "forged"
    redis.lpush(keys.SUBMIT_QUEUE, json.dumps(content))
    eventually(client.dead_letters, "the dead letter")
    client.end_of_queue()
    assert new_worker().announce().begin().id == "c"


def test_a_waiting_call_whose_message_was_spoiled_ends_and_holds_up_none(
    client: Client, new_worker: NewWorker, redis: Redis
) -> None:
    client.submit(header("spoiled"))
    client.waits_for("spoiled", "no worker is running")
    client.submit(header("good"))
    client.waits_for("good", "no worker is running")
    redis.hset(keys.message("spoiled"), "submitted", "garbage")
    worker = new_worker().announce()
    assert worker.begin().id == "good"
    failure = client.end("spoiled").failure
    assert failure is not None
    assert failure.code is ErrorCode.INVALID_REQUEST
    assert not client.is_waiting("spoiled")


def test_a_key_of_another_type_where_a_record_should_be_costs_only_that_call(
    client: Client, new_worker: NewWorker, redis: Redis
) -> None:
    worker = new_worker().announce()
    redis.set(keys.call("c"), "not a record")
    redis.lpush(keys.SUBMIT_QUEUE, message(header("c")))
    client.submit(header("after"))
    assert worker.begin().id == "after"
    client.end_of_queue()
    (letter,) = client.dead_letters()
    assert "record" in letter["reason"]


def test_a_spoiled_record_of_a_waiting_call_costs_only_that_call(
    client: Client, new_worker: NewWorker, redis: Redis
) -> None:
    for call_id in ("state", "attempt", "type", "good"):
        client.submit(header(call_id))
        client.waits_for(call_id, "no worker is running")
    redis.hset(keys.call("state"), "state", "sleeping")
    redis.hset(keys.call("attempt"), "attempt", b"\xff")
    redis.delete(keys.call("type"))
    redis.set(keys.call("type"), "not a record")
    assert new_worker().announce().begin().id == "good"
    eventually(lambda: not redis.zcard(keys.WAITING), "the spoiled ones are forgotten")


def test_an_announcement_that_can_not_be_read_is_passed_over(
    client: Client, new_worker: NewWorker, redis: Redis
) -> None:
    for name in ("bad@test", "worse@test"):
        new_worker(name).announce()
    redis.hset(keys.worker("bad@test"), "announcement", "garbage")
    redis.hset(keys.worker("worse@test"), "announcement", b"\xff\x00")
    client.submit(header("c"))
    client.waits_for("c", "no worker is running")
    assert new_worker("good@test").announce().begin().id == "c"


def test_only_the_newest_dead_letters_are_kept(client: Client, redis: Redis) -> None:
    with redis.pipeline() as pipe:
        for number in range(MOST_DEAD_LETTERS + 50):
            pipe.lpush(keys.SUBMIT_QUEUE, f"garbage {number}")
        pipe.execute()
    client.end_of_queue()
    letters = client.dead_letters()
    assert len(letters) == MOST_DEAD_LETTERS
    assert letters[0]["item"] == f"garbage {MOST_DEAD_LETTERS + 49}"
