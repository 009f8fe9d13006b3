"""What an executor sends before its result: output, yielded values, and no more of them than there is credit for."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any

import pytest

from readie.pickling import dump_call, load_value
from readie.protocol.payload import Buffer
from workers.executor.wire import WireError
from workers.sandbox.connection import CallResult, ConnectionLostError, ExecutorConnection
from workers.sandbox.conversation import Credit, UnwantedError


class Listener:
    """Keeps what it hears, and does what a test wants at each value and look."""

    def __init__(self, credit: Credit | None = None) -> None:
        self.credit = credit
        self.output = b""
        self.values: list[Any] = []
        self.event = os.eventfd(0, os.EFD_NONBLOCK)
        self.at_look: Callable[[], None] = lambda: None
        self.at_value: Callable[[], None] = lambda: None
        self.at_output: Callable[[], None] = lambda: None

    def fileno(self) -> int:
        return self.event

    def wake_up(self) -> None:
        os.eventfd_write(self.event, 1)

    def look(self) -> None:
        os.eventfd_read(self.event)
        self.at_look()

    def printed(self, output: bytes) -> None:
        self.output += output
        self.at_output()

    def yielded(self, container: Buffer) -> None:
        self.values.append(load_value(bytes(container)))
        self.at_value()


PLENTY = Credit(1000, 1 << 30)


def run(
    connection: ExecutorConnection, listener: Listener, function: Callable[..., Any], *arguments: Any
) -> CallResult:
    return connection.call("c1", function.__name__, [dump_call(function, arguments, {})], timeout=30, listener=listener)


def test_values_come_while_the_function_runs_and_its_return_value_is_the_result(connection: ExecutorConnection) -> None:
    def count(most: int) -> Generator[int, None, str]:
        yield from range(most)
        return "the end"

    listener = Listener(PLENTY)
    for most in (5, 0, 3):
        listener.values.clear()
        result = run(connection, listener, count, most)

        assert listener.values == list(range(most))
        assert load_value(result.value) == "the end"


def test_async_generators_stream_and_coroutines_run_to_their_end(connection: ExecutorConnection) -> None:
    async def triples(most: int) -> AsyncIterator[int]:
        import asyncio

        for number in range(most):
            await asyncio.sleep(0)
            yield 3 * number

    async def add(a: int, b: int) -> int:
        import asyncio

        return sum(await asyncio.gather(*(asyncio.sleep(0, number) for number in (a, b))))

    listener = Listener(PLENTY)
    run(connection, listener, triples, 4)

    assert listener.values == [0, 3, 6, 9]
    assert load_value(run(connection, Listener(), add, 2, 3).value) == 5


def test_no_more_is_computed_than_there_is_credit_for(connection: ExecutorConnection) -> None:
    def noisy() -> Iterator[int]:
        for number in range(6):
            print(number)
            yield number

    listener = Listener(Credit(2, 1 << 20))
    seen: list[tuple[bytes, list[int]]] = []

    def more() -> None:
        seen.append((listener.output, list(listener.values)))
        assert listener.credit is not None
        listener.credit = Credit(listener.credit.values + 2, 1 << 20)

    listener.at_look = more
    listener.at_value = lambda: listener.wake_up() if len(listener.values) % 2 == 0 else None
    run(connection, listener, noisy)

    assert seen[0] == (b"0\n1\n", [0, 1])
    assert listener.values == list(range(6))


def test_bytes_count_against_the_credit_as_well(connection: ExecutorConnection) -> None:
    def large() -> Iterator[bytes]:
        for _ in range(3):
            print("made")
            yield bytes(1000)

    listener = Listener(Credit(1000, 500))
    seen: list[bytes] = []

    def more() -> None:
        seen.append(listener.output)
        listener.credit = Credit(1000, 500 + 1200 * len(listener.values))

    listener.at_look = more
    listener.at_value = listener.wake_up
    run(connection, listener, large)

    assert seen[0] == b"made\n"
    assert len(listener.values) == 3


def test_a_function_whose_values_nobody_wants_is_closed_at_its_yield(connection: ExecutorConnection) -> None:
    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            print("closed")

    async def endless_too() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            print("closed")

    for function in (endless, endless_too):
        listener = Listener(Credit(3, 1 << 20))

        def stop(listener: Listener = listener) -> None:
            listener.credit = Credit(3, 1 << 20, stop=True)

        listener.at_look = stop
        listener.at_value = lambda listener=listener: listener.wake_up() if len(listener.values) == 3 else None
        result = run(connection, listener, function)

        assert result.outcome == "ok"
        assert listener.output == b"closed\n"


def test_a_function_that_does_not_come_to_its_yield_is_given_up(connection: ExecutorConnection) -> None:
    def stubborn() -> Iterator[int]:
        import time

        yield 1
        print("on its way")
        time.sleep(1000)
        yield 2

    listener = Listener(PLENTY)

    def stop() -> None:
        listener.credit = Credit(1000, 1 << 30, stop=True)

    listener.at_output = listener.wake_up
    listener.at_look = stop
    with pytest.raises(UnwantedError):
        run(connection, listener, stubborn)


def test_an_error_comes_after_the_values_before_it_with_the_users_frames_only(connection: ExecutorConnection) -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise LookupError("no more")

    async def failing_too() -> AsyncIterator[int]:
        yield 1
        raise LookupError("no more")

    for function in (failing, failing_too):
        listener = Listener(PLENTY)
        result = run(connection, listener, function)

        assert listener.values == [1]
        assert result.error is not None
        assert (result.error.type, result.error.message) == ("LookupError", "no more")
        assert "workers/executor" not in result.error.traceback
        assert "asyncio" not in result.error.traceback


def test_a_value_that_cannot_be_pickled_is_named(connection: ExecutorConnection) -> None:
    def locks() -> Iterator[object]:
        import threading

        yield 1
        yield threading.Lock()

    listener = Listener(PLENTY)
    result = run(connection, listener, locks)

    assert listener.values == [1]
    assert result.error is not None
    assert result.error.code == "serialization"
    assert "a yielded value, a _thread.lock" in result.error.message


def test_a_value_that_nobody_asked_for_ends_the_call(connection: ExecutorConnection) -> None:
    def forge() -> None:
        import gc
        import socket

        from workers.executor import wire

        (worker,) = [item for item in gc.get_objects() if isinstance(item, socket.socket) and item.fileno() >= 0]
        wire.send_frame(worker, wire.Kind.YIELD, [b"anything"])

    with pytest.raises(WireError, match="not asked for"):
        run(connection, Listener(), forge)


def test_what_python_c_code_and_subprocesses_print_stays_in_order(connection: ExecutorConnection) -> None:
    def chatter() -> None:
        import ctypes
        import os
        import subprocess
        import sys

        libc = ctypes.CDLL(None)
        for number in range(50):
            print(f"{number} out")
            print(f"{number} err", file=sys.stderr)
            libc.puts(f"{number} libc".encode())
            os.write(2, f"{number} fd\n".encode())
        subprocess.run("echo child; echo child error >&2; echo named > /dev/stderr", shell=True, check=True)
        print("unfinished", end="")
        libc.printf(b" of C")

    listener = Listener()
    run(connection, listener, chatter)
    lines = listener.output.decode().splitlines()

    assert lines[:200] == [f"{number} {kind}" for number in range(50) for kind in ("out", "err", "libc", "fd")]
    assert lines[200:] == ["child", "child error", "named", "unfinished of C"]


def test_output_comes_before_the_value_that_follows_it(connection: ExecutorConnection) -> None:
    def alternate() -> Iterator[int]:
        for number in range(20):
            print(number, end="")
            yield number

    listener = Listener(PLENTY)
    seen: list[bytes] = []
    listener.at_value = lambda: seen.append(listener.output)
    run(connection, listener, alternate)

    assert len(seen) == 20
    for number, output in enumerate(seen):
        assert output.startswith("".join(map(str, range(number + 1))).encode())


def test_nothing_of_many_lines_is_lost(connection: ExecutorConnection) -> None:
    def lines() -> None:
        for number in range(20_000):
            print(f"line {number}")

    listener = Listener()
    run(connection, listener, lines)

    assert listener.output.decode().splitlines() == [f"line {number}" for number in range(20_000)]


def test_c_code_that_prints_while_it_holds_the_interpreters_lock_does_not_stop(connection: ExecutorConnection) -> None:
    def lines() -> None:
        import ctypes

        libc = ctypes.PyDLL(None)
        for _ in range(5_000):
            libc.puts(b"x" * 99)

    listener = Listener()
    run(connection, listener, lines)

    assert len(listener.output) == 500_000


def test_the_last_line_of_a_dying_process_is_not_lost(connection: ExecutorConnection) -> None:
    def die() -> None:
        import os

        print("last words")
        os.kill(os.getpid(), 9)

    listener = Listener()
    with pytest.raises(ConnectionLostError):
        run(connection, listener, die)

    assert listener.output == b"last words\n"
