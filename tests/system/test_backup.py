"""What docs/deploy.md says of backup: a copy of the folder with Redis' append-only file brings back what was then."""

import shutil
from pathlib import Path

import pytest

import readie
from readie import WorkerLostError, remote
from tests.local_stack import LocalStack, default_client_of, eventually

SECONDS = 60


@remote
def filled(size: int) -> bytes:
    return b"x" * size


@remote
def never_ends() -> None:
    import time

    time.sleep(1000)


def test_a_copy_made_while_redis_runs_brings_back_results_and_the_calls_that_waited(
    stack: LocalStack, tmp_path: Path, data_folder: Path
) -> None:
    small, large = filled.spawn(10), filled.spawn(100_000)
    assert (len(small.result(SECONDS)), len(large.result(SECONDS))) == (10, 100_000)
    running = [never_ends.spawn() for _ in range(4)]
    eventually(lambda: all(call.status().state == "running" for call in running), "all slots are taken")
    waiting = filled.spawn(20)
    eventually(lambda: waiting.status().detail, "it waits")
    restored = LocalStack(tmp_path / "home")
    restored.environment["READIE_DATA"] = str(data_folder)
    with stack.redis() as redis:
        (before,) = redis.config_get("auto-aof-rewrite-percentage").values()  # type: ignore[union-attr]
        redis.config_set("auto-aof-rewrite-percentage", 0)
        shutil.copytree(stack.home / "redis", restored.home / "redis")
        redis.config_set("auto-aof-rewrite-percentage", before)
    for call in running:
        call.cancel()
    assert len(waiting.result(SECONDS)) == 20
    later = filled.spawn(30)
    assert len(later.result(SECONDS)) == 30

    restored.up("--workers", "1", "--slots", "2")
    try:
        with default_client_of(restored):
            assert len(readie.get_call(small.id).result(SECONDS)) == 10
            assert len(readie.get_call(large.id).result(SECONDS)) == 100_000
            assert len(readie.get_call(waiting.id).result(SECONDS)) == 20
            for call in running:
                with pytest.raises(WorkerLostError):
                    readie.get_call(call.id).result(SECONDS)
            with pytest.raises(readie.ResultExpiredError):
                readie.get_call(later.id)
            assert len(filled(40)) == 40
    finally:
        restored.down()
