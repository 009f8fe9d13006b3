"""The client where people use it: in Celery tasks, with retries, with large arrays, after its own death."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery

import readie
from readie import Retries, remote
from readie.protocol.envelope import CallState
from tests.local_stack import LocalStack, eventually

pytestmark = pytest.mark.usefixtures("stack")
PROGRAM = Path(__file__).parent / "celery_program.py.txt"


@pytest.fixture(scope="module")
def application(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Celery]:
    """The user's application with a prefork worker of its own."""
    folder = tmp_path_factory.mktemp("celery")
    (folder / "mine.py").write_text(PROGRAM.read_text())
    broker = stack.redis_url.rpartition("/")[0] + "/5"
    log = (folder / "worker.log").open("wb")
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "mine", "worker", "-c", "2", "-n", "mine@test", "--without-mingle"],
        cwd=folder,
        env={**os.environ, "BROKER": broker, "READIE_REDIS_URL": stack.redis_url},
        stdout=log,
        stderr=log,
    )
    yield Celery("reader", broker=broker, backend=broker)
    worker.send_signal(signal.SIGTERM)
    worker.wait(timeout=60)


def test_a_celery_task_calls_remote_functions(application: Celery) -> None:
    results = [application.send_task("mine.sum_of_squares", [count]) for count in (3, 10)]
    assert [result.get(timeout=100) for result in results] == [5 + 1, 285 + 1]


def test_a_forked_task_can_wait_for_what_its_parent_called(application: Celery) -> None:
    value, pid = application.send_task("mine.of_the_parent").get(timeout=100)
    assert value == 144
    assert pid != os.getpid()


@remote
def fails_until(needed: int, attempts: int) -> int:
    if attempts < needed:
        raise ConnectionError("not yet")
    return attempts


def test_a_function_that_raises_runs_again_as_often_as_allowed() -> None:
    call = fails_until.options(retries=Retries(2, after=(ConnectionError,), delay=0.1)).spawn(1, 0)
    with pytest.raises(ConnectionError, match="not yet"):
        call.result(timeout=60)
    assert call.report().attempt == 3
    call = fails_until.options(retries=Retries(2, after=(KeyError,))).spawn(1, 0)
    with pytest.raises(ConnectionError):
        call.result(timeout=60)
    assert call.report().attempt == 1


def test_retries_are_refused_in_a_session() -> None:
    with readie.session(), pytest.raises(readie.InvalidRequestError, match="retries can't be used in a session"):
        fails_until.options(retries=2)(0, 0)


def test_a_dead_sandbox_is_tried_again() -> None:
    @remote(retries=1)
    def leave() -> None:
        os._exit(3)

    call = leave.spawn()
    with pytest.raises(readie.SandboxDiedError):
        call.result(timeout=60)
    assert call.report().attempt == 2


def test_a_call_outlives_its_client(stack: LocalStack) -> None:
    program = """
import os, time
from readie import remote
@remote
def slow(n):
    import time
    time.sleep(1)
    return n + 1
print(slow.spawn(41).id, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "READIE_REDIS_URL": stack.redis_url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    call = readie.get_call(done.stdout.strip())
    assert call.status().state is not CallState.DONE
    assert call.result(timeout=60) == 42
    assert readie.get_call(call.id).result() == 42


def test_arrays_of_100_megabytes_go_there_and_back_beside_the_pickle() -> None:
    @remote
    def doubled(array: memoryview) -> object:
        import pickle

        import numpy as np

        return pickle.PickleBuffer(np.frombuffer(array, dtype="u1") * 2)

    array = bytearray(b"\x01" * 100_000_000)
    import pickle

    call = doubled.options(memory="1Gi").spawn(pickle.PickleBuffer(array))
    value = call.result(timeout=120)
    assert memoryview(value).nbytes == len(array)
    assert bytes(memoryview(value)[:3]) == b"\x02\x02\x02"


def test_a_gpu_is_refused_where_no_worker_has_one() -> None:
    with pytest.raises(readie.ResourceExhaustedError, match="leave gpu out"):
        fails_until.options(gpu=True)(0, 0)


def test_calls_mapped_over_many_items_come_back_in_order() -> None:
    @remote
    def square(number: int) -> int:
        return number**2

    assert list(square.map(range(20), window=6)) == [number**2 for number in range(20)]
    assert sorted(square.map(range(20), ordered=False)) == [number**2 for number in range(20)]
    assert list(remote(pow).starmap([(2, 3), (3, 2)])) == [8, 9]


def test_environment_variables_are_nowhere_in_what_others_see(stack: LocalStack) -> None:
    @remote(env={"TOKEN": "hush-hush"})
    def length() -> int:
        return len(os.environ["TOKEN"])

    redis = stack.redis()
    seen: list[bytes] = []
    with redis.monitor() as monitor:
        call = length.spawn()
        for command in monitor.listen():
            seen.append(command["command"].encode())
            if call.id in command["command"] and "celery-task-meta" in command["command"]:
                break
    assert call.result(timeout=60) == len("hush-hush")
    assert seen
    assert not any(b"hush-hush" in text for text in seen)
    eventually(lambda: "hush-hush" not in stack.worker_log(), "no log has it")
