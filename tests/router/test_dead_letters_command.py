"""``readie dead-letters``: what could not be read, for people and for programs."""

import json
import os
import subprocess
import sys

import pytest
from redis import Redis
from router_cluster import Client, eventually

from readie.ledger import Ledger
from readie.protocol import keys
from readie.protocol.dead_letter import DeadLetter


def run_readie(redis_url: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command as a user does, in a terminal of 80 columns."""
    return subprocess.run(
        [sys.executable, "-m", "readie", "dead-letters", *arguments],
        env={**os.environ, "READIE_REDIS_URL": redis_url, "COLUMNS": "80", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.usefixtures("router")
def test_what_a_router_could_not_read_is_shown_with_the_reason(client: Client, redis: Redis, redis_url: str) -> None:
    for item in (b"first garbage", b"\xff\x00 \x1b[31mred " + b"x" * 3000, b'{"headers": 5}'):
        redis.lpush(keys.SUBMIT_QUEUE, item)
    eventually(lambda: len(client.dead_letters()) == 3, "the dead letters")
    done = run_readie(redis_url)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout
    assert done.stdout.index("not a Celery message") < done.stdout.index("not JSON")
    assert "first garbage" in done.stdout
    assert keys.SUBMIT_QUEUE in done.stdout


def test_json_has_all_that_is_kept(redis: Redis, redis_url: str) -> None:
    letter = DeadLetter.of(b"x" * 3000, "some queue", "some reason")
    Ledger(redis).bury(letter)
    redis.lpush(keys.DEAD_LETTERS, "put here by somebody else")
    done = run_readie(redis_url, "--json")
    assert done.returncode == 0, done.stderr
    foreign, own = json.loads(done.stdout)
    assert own == letter.model_dump()
    assert foreign["item"] == "put here by somebody else"


def test_clear_removes_what_it_has_shown(redis: Redis, redis_url: str) -> None:
    Ledger(redis).bury(DeadLetter.of(b"garbage", "some queue", "some reason"))
    assert len(json.loads(run_readie(redis_url, "--json", "--clear").stdout)) == 1
    assert redis.exists(keys.DEAD_LETTERS) == 0
    done = run_readie(redis_url, "--clear")
    assert (done.returncode, done.stdout, done.stderr) == (0, "No dead letters.\n", "")


def test_a_redis_that_is_not_there_is_said_to_be_so() -> None:
    done = run_readie("redis://127.0.0.1:1/0")
    assert done.returncode == 4
    assert "can't reach Redis at redis://127.0.0.1:1/0" in done.stderr
    assert "Traceback" not in done.stderr
