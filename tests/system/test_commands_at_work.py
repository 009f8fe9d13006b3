"""Commands that look at calls, checkpoints and workers, on a stack that runs."""

from __future__ import annotations

import json
from typing import Any

from readie import remote
from tests.local_stack import LocalStack, eventually


@remote(name="look.at_me")
def look() -> int:
    print("seen")
    return 7


def shown(stack: LocalStack, *arguments: str) -> Any:
    return json.loads(stack.run(*arguments, "--json").stdout)


def test_a_call_its_checkpoint_and_its_worker_are_shown_as_they_are(stack: LocalStack) -> None:
    before = shown(stack, "top")["starts"]["restored"]
    call = look.options(checkpoint_id="checkpoint_1").spawn()
    assert call.result(60) == 7
    (row,) = shown(stack, "calls", "--function", "look.*", "--limit", "1")
    assert (row["id"], row["state"], row["begun"]) == (call.id, "done", 1)
    details = shown(stack, "calls", call.id[:12])
    assert (details["report"]["start"], details["report"]["checkpoint_id"]) == ("restored", "checkpoint_1")
    assert details["report"]["phases"].keys() >= {"queue", "route", "start", "execute"}
    assert details["report"]["output_bytes"] == 5
    (generation,) = shown(stack, "checkpoints")
    (worker,) = generation["workers"]
    assert worker == row["worker"]
    assert [one["id"] for one in generation["checkpoints"]][:2] == ["checkpoint_0", "checkpoint_1"]
    assert all(0 < one["restore_seconds"] < 60 for one in generation["checkpoints"])
    # Workers tell of their counts when they renew their lease.
    now = eventually(
        lambda: (top := shown(stack, "top"))["starts"]["restored"] > before and top, "the worker has told of it"
    )
    assert now["ended"]["done"] >= 1
    assert now["slots"] == 4
    assert sum(now["sandboxes"].values()) >= 1
