"""Generators stream while they run, and what functions print can be read while they run."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

import readie
from readie import CallCancelledError, CallTimeoutError, ReadieError, RemoteError, WorkerLostError, remote
from readie.ledger.streams import WINDOW_BYTES, WINDOW_VALUES
from readie.protocol import keys
from readie.protocol.envelope import CallState
from tests.local_stack import LocalStack, eventually

pytestmark = pytest.mark.usefixtures("stack")

SECONDS = 60


@remote
def count(most: int) -> Generator[int, None, str]:
    yield from range(most)
    return "counted"


@remote
def endless(size: int = 0) -> Iterator[tuple[int, bytes]]:
    import itertools

    for number in itertools.count():
        print(number)
        yield number, bytes(size)


@remote
def one_and_a_long_wait() -> Iterator[int]:
    import time

    yield 1
    time.sleep(1000)


@remote
async def triples(most: int) -> AsyncIterator[int]:
    import asyncio

    for number in range(most):
        await asyncio.sleep(0)
        yield 3 * number


@remote
async def add(a: int, b: int) -> int:
    import asyncio

    return sum(await asyncio.gather(asyncio.sleep(0.01, a), asyncio.sleep(0.01, b)))


@remote
def say(*lines: str) -> None:
    for line in lines:
        print(line)


def ended(call: readie.Call[Any], state: CallState) -> None:
    eventually(lambda: call.status().state is state, f"the call is {state}, but {call.status()}")


def test_values_come_while_the_function_runs() -> None:
    values = one_and_a_long_wait()
    assert next(values) == 1
    assert values.call.status().state is CallState.RUNNING
    values.close()
    ended(values.call, CallState.CANCELLED)


def test_all_values_come_in_order_and_what_the_generator_returns() -> None:
    values = count(5 * WINDOW_VALUES)
    assert list(values) == list(range(5 * WINDOW_VALUES))
    assert values.call.result(timeout=SECONDS) == "counted"
    assert values.call.report().yielded == 5 * WINDOW_VALUES
    assert list(count(0)) == []


def test_a_slow_reader_bounds_what_waits_in_between(stack: LocalStack) -> None:
    redis = stack.redis()
    for size, most in ((0, 3 * WINDOW_VALUES), (WINDOW_BYTES // 8, 3 * 8 + 3)):
        values = endless(size)
        for expected in range(3):
            assert next(values)[0] == expected
        stalled = keys.call(values.call.id)
        eventually(lambda name=stalled: redis.hget(name, "stalled"), "the window is full")
        printed = list(values.call.logs())
        assert len(printed) <= most
        assert redis.memory_usage(keys.values(values.call.id), samples=0) < 2 * WINDOW_BYTES

        followed = [number for number, _ in itertools.islice(values, 3 * WINDOW_VALUES)]
        assert followed == list(range(3, 3 + 3 * WINDOW_VALUES)), "nothing is lost or doubled when it is read on"
        values.close()
        ended(values.call, CallState.CANCELLED)
    redis.close()


def test_leaving_the_loop_stops_the_function_and_lets_it_clean_up() -> None:
    @remote
    def cleaning() -> Iterator[str]:
        try:
            while True:
                yield "x"
        finally:
            print("cleaned up")

    calls = []
    values = cleaning()
    for _ in values:
        calls.append(values.call)
        del values
        break
    (call,) = calls
    ended(call, CallState.CANCELLED)
    assert list(call.logs()) == ["cleaned up"]
    with pytest.raises(CallCancelledError):
        call.result(timeout=SECONDS)


def test_a_process_that_ends_in_the_loop_stops_the_function(stack: LocalStack, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import itertools, readie\n"
        "@readie.remote\n"
        "def endless():\n"
        "    yield from itertools.count()\n"
        "values = endless()\n"
        "next(values)\n"
        "print(values.call.id)\n"
    )
    done = subprocess.run(
        [sys.executable, script], env=stack.environment, capture_output=True, text=True, timeout=60, check=True
    )
    ended(readie.get_call(done.stdout.strip()), CallState.CANCELLED)


def test_an_error_arrives_after_the_values_before_it() -> None:
    @remote
    def failing() -> Iterator[int]:
        yield 1
        yield 2
        raise LookupError("no more")

    values = failing()
    assert [next(values), next(values)] == [1, 2]
    with pytest.raises(LookupError, match="no more") as caught:
        next(values)
    assert isinstance(caught.value, RemoteError)
    assert list(values) == [], "it has ended"


def test_async_loops_read_generators_of_both_kinds() -> None:
    async def read() -> list[list[int]]:
        return [
            [value async for value in triples.aio(40)],
            [value async for value in triples(5)],
            [value async for value in count.aio(40)],
            list(await asyncio.to_thread(list, count(3))),
        ]

    assert asyncio.run(read()) == [[3 * n for n in range(40)], [0, 3, 6, 9, 12], list(range(40)), [0, 1, 2]]


def test_several_streams_are_read_side_by_side_in_one_event_loop() -> None:
    async def read() -> list[int]:
        streams = [count.aio(50) for _ in range(3)]

        async def total(stream: readie.Stream[int]) -> int:
            return sum([value async for value in stream])

        return list(await asyncio.gather(*map(total, streams)))

    assert asyncio.run(read()) == [sum(range(50))] * 3


def test_coroutine_functions_run_to_their_end() -> None:
    assert add(2, 3) == 5
    assert asyncio.run(add.aio(2, 3)) == 5


def test_another_reader_goes_on_where_the_last_one_stopped() -> None:
    call = count.spawn(40)
    first = call.stream()
    assert [next(first) for _ in range(5)] == [0, 1, 2, 3, 4]
    again = readie.get_call(call.id).stream()
    rest = list(again)

    assert rest[-1] == 39
    assert rest == list(range(rest[0], 40))
    assert rest[0] <= 5, "nothing is left out; what the first reader had not gone past comes again"
    with pytest.raises(ReadieError, match="somebody else"):
        list(first)


def test_values_before_the_loss_of_a_worker_are_not_lost(stack: LocalStack) -> None:
    values = one_and_a_long_wait()
    call = values.call
    eventually(lambda: call.status().state is CallState.RUNNING, "it runs")
    redis = stack.redis()
    eventually(lambda: redis.xlen(keys.values(call.id)), "a value waits")
    redis.close()
    stack.kill_and_await_restart("worker1")

    assert next(values) == 1
    with pytest.raises(WorkerLostError):
        next(values)


def test_streams_outlive_a_restart_of_redis(stack: LocalStack) -> None:
    @remote
    def ticking() -> Iterator[int]:
        import time

        for number in range(60):
            print(f"tick {number}")
            time.sleep(0.05)
            yield number

    values = ticking()
    read = [next(values)]
    before = stack.pid("redis")
    redis = stack.redis()
    redis.shutdown(nosave=True)  # type: ignore[no-untyped-call]
    redis.close()
    eventually(lambda: stack.pid("redis") not in {0, before}, "it is started again")
    for value in values:
        read.append(value)  # noqa: PERF402 - what was read before an error is shown

    assert read == list(range(60))
    assert list(values.call.logs()) == [f"tick {number}" for number in range(60)]


def test_output_is_in_order_whatever_prints_it() -> None:
    @remote
    def chatter() -> None:
        import ctypes
        import os
        import subprocess
        import sys

        libc = ctypes.CDLL(None)
        for number in range(20):
            print(f"{number} out")
            print(f"{number} err", file=sys.stderr)
            libc.puts(f"{number} libc".encode())
            os.write(1, f"{number} fd\n".encode())
            subprocess.run(["/bin/sh", "-c", f"echo {number} child; echo {number} named > /dev/stderr"], check=True)

    for function in (chatter, chatter.options(disable_optimized_execution=True)):
        call = function.spawn()
        call.result(timeout=SECONDS)
        kinds = ("out", "err", "libc", "fd", "child", "named")
        assert list(call.logs()) == [f"{number} {kind}" for number in range(20) for kind in kinds]


def test_nothing_of_20000_lines_is_lost() -> None:
    @remote
    def lines() -> None:
        for number in range(20_000):
            print(f"this is line {number}")

    expected = [f"this is line {number}" for number in range(20_000)]
    call = lines.spawn()
    assert list(call.logs(follow=True)) == expected
    assert list(call.logs()) == expected
    assert call.report().output_bytes == sum(len(line) + 1 for line in expected)


def test_logs_are_followed_while_the_function_runs() -> None:
    @remote
    def wait_after_a_line() -> None:
        import time

        print("one")
        time.sleep(1000)

    call = wait_after_a_line.spawn()
    logs = call.logs(follow=True)
    assert next(logs) == "one"
    assert call.status().state is CallState.RUNNING
    call.cancel()
    assert list(logs) == []


@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), 9)", "ctypes.string_at(0)", "time.sleep(1000)"])
def test_the_last_line_is_there_when_the_sandbox_dies(end: str) -> None:
    @remote(timeout=2)
    def die() -> None:
        import ctypes  # noqa: F401 - for what is executed below
        import os  # noqa: F401
        import time  # noqa: F401

        print("last line")
        exec(end)

    call = die.spawn()
    with pytest.raises(ReadieError) as caught:
        call.result(timeout=SECONDS)
    assert isinstance(caught.value, CallTimeoutError) == end.startswith("time")
    assert list(call.logs(follow=True)) == ["last line"]


def test_another_process_reads_on_at_an_offset() -> None:
    call = say.spawn(*(f"line {number}" for number in range(10)))
    call.result(timeout=SECONDS)
    logs = call.logs()
    assert [next(logs) for _ in range(4)] == [f"line {number}" for number in range(4)]

    again = readie.get_call(call.id).logs(offset=logs.offset)
    assert list(again) == [f"line {number}" for number in range(4, 10)]
    assert again.offset == 70


def test_async_loops_read_logs() -> None:
    async def read() -> list[str]:
        call = await asyncio.to_thread(say.spawn, "a", "b")
        return [line async for line in call.logs(follow=True)]

    assert asyncio.run(read()) == ["a", "b"]


def test_endless_output_stays_bounded_and_says_what_is_missing(stack: LocalStack) -> None:
    @remote
    def babble() -> None:
        while True:
            print("x" * 99)

    call = babble.spawn()
    redis = stack.redis()
    limit = 8 << 20
    eventually(lambda: int(redis.hget(keys.call(call.id), "output_bytes") or 0) > 2 * limit, "it prints much")
    assert redis.memory_usage(keys.output(call.id), samples=0) < 1.5 * limit
    redis.close()
    call.cancel()
    with pytest.raises(CallCancelledError):
        call.result(timeout=SECONDS)
    lines = call.logs()
    assert "bytes of output are no longer kept" in next(lines)


def test_a_silent_call_leaves_no_trace_of_streams(stack: LocalStack) -> None:
    redis = stack.redis()
    before = redis.info("commandstats")
    call = add.spawn(1, 2)
    assert call.result(timeout=SECONDS) == 3
    after = redis.info("commandstats")
    for command in ("cmdstat_xadd", "cmdstat_xrange", "cmdstat_xtrim"):
        assert after.get(command) == before.get(command)
    assert not redis.exists(keys.output(call.id), keys.values(call.id))
    redis.close()


def test_stream_logs_prints_each_line_after_the_name_of_its_call(capsys: pytest.CaptureFixture[str]) -> None:
    printing = say.options(stream_logs=True, name="talk")
    printing("one", "two")
    captured = capsys.readouterr()
    assert captured.out == ""
    (first, second) = captured.err.splitlines()
    prefix = first.removesuffix("one")
    assert prefix.startswith("[talk ")
    assert second == prefix + "two"

    add.options(stream_logs=True)(1, 2)
    assert capsys.readouterr().err == ""


def test_progress_bars_are_drawn_over_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    @remote(name="bar", stream_logs=True)
    def progress() -> None:
        import sys

        for done in range(11):
            sys.stderr.write(f"\r{10 * done:3}%|{'#' * done:10}| {done}/10")
            sys.stderr.flush()
        sys.stderr.write("\n")

    call = progress.spawn()
    call.result(timeout=SECONDS)
    drawn = capsys.readouterr().err
    assert drawn.endswith(f"\r[bar {call.id[:6]}] 100%|##########| 10/10\n")
    assert drawn.count("\n") == 1
    assert list(call.logs()) == ["100%|##########| 10/10"]


@pytest.fixture
def functions(tmp_path: Path) -> Path:
    path = tmp_path / "functions.py"
    path.write_text(
        "def greet(name, times=1, **more):\n"
        "    print('greeting')\n"
        "    return {'text': f'hello {name}' * times, **more}\n"
        "def count(most):\n"
        "    yield from range(most)\n"
        "def fail():\n"
        "    raise LookupError('not here')\n"
        "def wait():\n"
        "    import time\n"
        "    print('waiting')\n"
        "    time.sleep(1000)\n"
    )
    return path


def test_functions_are_run_from_the_command_line(stack: LocalStack, functions: Path) -> None:
    done = stack.run("run", f"{functions}:greet", "--arg", "you", "--arg", "times=2", "--arg", "x=[1, 2]", "--json")
    assert json.loads(done.stdout) == {"text": "hello youhello you", "x": [1, 2]}
    assert done.stderr.endswith("] greeting\n")
    assert stack.run("run", f"{functions}:count", "--arg", "3").stdout == "0\n1\n2\n"

    failed = subprocess.run(
        [Path(sys.executable).parent / "readie", "run", f"{functions}:fail"],
        env=stack.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert failed.returncode == 1
    assert "LookupError: not here" in failed.stderr
    assert "in fail\n" in failed.stderr


def test_logs_and_cancel_work_on_the_command_line(stack: LocalStack, functions: Path) -> None:
    running = stack.start("run", f"{functions}:wait")
    assert running.stdout is not None
    line = running.stdout.readline()
    assert line.endswith("] waiting\n")
    redis = stack.redis()
    (call_id,) = [found.decode() for found in redis.zrange(keys.PENDING, 0, -1)]
    redis.close()

    assert stack.run("logs", call_id).stdout == "waiting\n"
    following = stack.start("logs", call_id, "--follow")
    assert json.loads(stack.run("cancel", call_id, "--json").stdout) == {call_id: True}
    assert following.communicate(timeout=SECONDS)[0] == "waiting\n"
    assert following.returncode == 0
    assert "CallCancelledError" in running.communicate(timeout=SECONDS)[0]
    assert running.returncode == 1
    assert stack.run("cancel", call_id).returncode == 1
    assert stack.run("logs", "no-such-call").returncode == 1


def test_an_interrupted_run_is_cancelled(stack: LocalStack, functions: Path) -> None:
    import signal

    running = stack.start("run", f"{functions}:wait")
    assert running.stdout is not None
    prefix = running.stdout.readline()
    assert prefix.endswith("] waiting\n")
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=SECONDS)
    assert running.returncode == 130
    redis = stack.redis()
    eventually(lambda: redis.zcard(keys.PENDING) == 0, "nothing runs")
    redis.close()
