"""``readie calls``: which calls there are, and all that is known of one."""

import json
import time
from typing import Any

from cli_cluster import WORKER, Cluster, Run
from redis import Redis

from readie.cli.calls import State
from readie.protocol import keys
from readie.protocol.envelope import CallState
from readie.protocol.record import CallDetails, CallRecord


def listed(run: Run, *arguments: str) -> list[dict[str, Any]]:
    done = run("calls", "--json", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    assert all(row.keys() == CallRecord.model_fields.keys() for row in rows)
    return rows


def test_the_newest_come_first_and_every_filter_leaves_out_the_others(run: Run, cluster: Cluster) -> None:
    cluster.announce()
    done = cluster.end(cluster.submit("project.mean", client="alice"))
    failed = cluster.end(cluster.submit("project.median"), CallState.FAILED)
    running = cluster.begin(cluster.submit("project.mean", client="bob"))
    placed = cluster.place(cluster.submit("fit"))
    queued = cluster.submit("fit", client="alice")
    everything = [queued.id, placed.id, running.id, failed.id, done.id]

    def ids(*arguments: str) -> list[str]:
        return [row["id"] for row in listed(run, *arguments)]

    assert ids() == everything
    assert ids("--limit", "2") == everything[:2]
    assert ids("--state", "running") == [running.id]
    assert ids("--state", "done", "--state", "queued") == [queued.id, done.id]
    assert ids("--function", "project.*") == [running.id, failed.id, done.id]
    assert ids("--worker", WORKER, "--state", "failed") == [failed.id]
    assert ids("--worker", "another") == []
    assert ids("--client", "alice", "--since", "1h") == [queued.id, done.id]
    cluster.redis.hset(keys.call(done.id), "submitted_at", time.time() - 7200)
    assert ids("--client", "alice", "--since", "1h") == [queued.id]
    assert run("calls", "--since", "soon").returncode == 2
    assert run("calls", "--state", "gone").returncode == 2


def test_thousands_of_calls_are_listed_without_a_command_that_stops_redis(
    run: Run, cluster: Cluster, redis: Redis
) -> None:
    with redis.pipeline(transaction=False) as pipe:
        for number in range(5000):
            record = {"state": "done", "submitted_at": number, "attempt": 1, "name": "f", "reply": "nobody"}
            pipe.hset(keys.call(f"{number:032x}"), mapping=record)
            pipe.set(keys.result(f"{number:032x}"), "{}")
        pipe.execute()
    redis.hset(keys.call("of-the-future"), "state", "dreaming")
    redis.set(keys.call("of-another-kind"), "text")
    redis.config_resetstat()
    rows = listed(run, "--limit", "30")
    assert [row["id"] for row in rows] == [f"{number:032x}" for number in range(4999, 4969, -1)]
    used = redis.info("commandstats")
    assert "cmdstat_keys" not in used
    assert used["cmdstat_scan"]["calls"] > 4


def test_one_is_shown_in_full_by_the_beginning_of_its_id(run: Run, cluster: Cluster) -> None:
    cluster.announce()
    failed = cluster.end(cluster.submit("project.median"), CallState.FAILED)
    done = run("calls", failed.id, "--json")
    assert done.returncode == 0, "what was asked for is there, however it ended"
    call = json.loads(done.stdout)
    assert call.keys() == CallDetails.model_fields.keys()
    assert (call["state"], call["failure"]["type"]) == ("failed", "builtins.ValueError")
    assert (call["report"]["checkpoint_id"], call["report"]["phases"]["execute"]) == ("checkpoint_1", 1.5)
    shown = run("calls", failed.id).stdout
    for part in (failed.id, "restored from checkpoint_1", "lowest predicted start", "execute 1.5 s", "  a line of it"):
        assert part in shown
    placed = cluster.place(cluster.submit("fit"))
    call = json.loads(run("calls", placed.id, "--json").stdout)
    assert (call["choice"]["checkpoint_id"], call["choice"]["predicted_seconds"]) == ("checkpoint_1", 0.2)
    assert call["options"]["timeout_seconds"] == 60
    assert call["hints"]["imports"] == ["pandas"]
    waiting = cluster.submit("fit")
    cluster.park(waiting, "no worker is running")
    assert "queued (no worker is running)" in run("calls", waiting.id).stdout

    several = run("calls", "0000")
    assert (several.returncode, several.stdout) == (1, "")
    assert "several calls begin with '0000'" in several.stderr
    cluster.redis.delete(keys.call(failed.id), keys.call(waiting.id))
    assert placed.id in run("calls", "0000").stdout
    for missing in ("[0]*", "fffff"):
        none = run("calls", missing)
        assert none.returncode == 1
        assert "no call is known" in none.stderr


def test_what_anybody_named_a_function_does_nothing_to_the_terminal(run: Run, cluster: Cluster) -> None:
    call = cluster.submit("red \x1b[31m\u202e")
    shown = run("calls").stdout + run("calls", call.id).stdout
    assert "\x1b" not in shown
    assert "\\x1b[31m\\u202e" in run("calls", call.id).stdout


def test_states_are_those_of_the_protocol() -> None:
    assert [state.value for state in State] == [state.value for state in CallState]
