"""Garbage on the queues of a running stack costs no call, ends no process, and can be looked at."""

import json

from readie import remote
from readie.protocol import keys
from tests.local_stack import LocalStack, eventually


@remote
def answer() -> int:
    return 42


def test_garbage_on_any_queue_ends_no_process_and_can_be_looked_at(stack: LocalStack) -> None:
    redis = stack.redis()
    before = stack.status()
    (worker,) = before["workers"]
    queues = [keys.SUBMIT_QUEUE, keys.worker_queue(worker["name"])]
    for queue in queues:
        redis.lpush(queue, "garbage", b"\xff\x00", "{}", '{"task": "another.one"}', "[" * 50_000)
    assert answer() == 42
    letters = eventually(
        lambda: len(found := json.loads(stack.run("dead-letters", "--json").stdout)) >= 10 and found, "the dead letters"
    )
    assert sorted({letter["queue"] for letter in letters}) == sorted(queues)
    shown = stack.run("dead-letters", "--clear").stdout
    assert "garbage" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert stack.run("dead-letters").stdout == "No dead letters.\n"
    after = stack.status()
    assert [part["restarts"] for part in after["stack"]["parts"]] == [
        part["restarts"] for part in before["stack"]["parts"]
    ]
    assert after["state"] == "running"
