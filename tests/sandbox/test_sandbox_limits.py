"""What one sandbox may use: with control groups, and without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from readie.pickling import dump_call
from workers.sandbox.cgroup import LimitError, MemoryHeldError
from workers.sandbox.connection import CallResult, ConnectionLostError, ExecutorConnection
from workers.sandbox.filesystem import Filesystem
from workers.sandbox.host import SandboxHost
from workers.sandbox.runsc import find_runsc
from workers.sandbox.sandbox import Sandbox, SandboxFailedError

SECONDS = 60.0
MIB = 1 << 20

pytestmark = pytest.mark.sandbox


def call(connection: ExecutorConnection, function: Callable[..., Any], *arguments: Any) -> CallResult:
    return connection.call("c1", "f", [dump_call(function, arguments, {})], timeout=SECONDS)


def started(sandbox: Sandbox) -> ExecutorConnection:
    sandbox.start(timeout=SECONDS)
    return sandbox.wait_ready(timeout=SECONDS)


def test_a_sandbox_that_ran_out_of_memory_tells_it_from_any_other_end(host: SandboxHost) -> None:
    def hold() -> None:
        held = []
        while True:
            held.append(bytearray(b"x" * MIB))

    def leave() -> None:
        import os

        os._exit(1)

    hungry, leaving = host.take(), host.take()
    for sandbox, function in ((hungry, hold), (leaving, leave)):
        connection = started(sandbox)
        sandbox.limit(memory_bytes=128 * MIB)
        with pytest.raises(ConnectionLostError):
            call(connection, function)
    exhausted = hungry.exhausted()
    assert exhausted is not None
    assert (exhausted.resource, exhausted.limit) == ("memory", 128 * MIB)
    assert 100 * MIB < exhausted.peak_bytes < 132 * MIB, "counted in batches of pages"
    assert leaving.exhausted() is None
    for sandbox in (hungry, leaving):
        host.discard(sandbox)


def test_a_limit_holds_from_the_beginning_until_another_is_set(
    run_dir: Path, filesystem: Filesystem, images: Path
) -> None:
    with SandboxHost(run_dir / "small", find_runsc(), filesystem, memory_bytes=24 * MIB) as host:
        small = host.take()

        def get_ready() -> None:
            small.restore(images / "numpy", timeout=SECONDS)
            small.wait_ready(timeout=SECONDS)

        with pytest.raises(SandboxFailedError, match="ran out of memory; its limit is 25165824"):
            get_ready()
        host.discard(small)


def test_what_is_held_already_is_no_limit(host: SandboxHost) -> None:
    sandbox = host.take()
    connection = started(sandbox)

    def keep() -> None:
        import sys

        sys.held = bytearray(b"x" * (100 << 20))  # type: ignore[attr-defined]

    assert call(connection, keep).error is None

    def go_on() -> None:
        sandbox.limit(memory_bytes=64 * MIB)
        call(connection, lambda: None)  # version 2 of control groups ends it instead of refusing

    with pytest.raises((MemoryHeldError, ConnectionLostError)):
        go_on()
    host.discard(sandbox)


def test_more_host_processes_than_allowed_end_the_sandbox_and_it_tells(host: SandboxHost) -> None:
    sandbox = host.take()
    connection = started(sandbox)
    assert sandbox._cgroup is not None
    sandbox._cgroup.limit_pids(60)

    def fork() -> None:
        import os
        import time

        while True:
            if os.fork() == 0:
                time.sleep(1000)

    with pytest.raises(ConnectionLostError):
        call(connection, fork)
    exhausted = sandbox.exhausted()
    assert exhausted is not None
    assert exhausted.resource == "processes"
    host.discard(sandbox)


@pytest.fixture
def bare(
    run_dir: Path, filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Sandbox, ExecutorConnection]]:
    """A sandbox of a worker that can't use control groups."""
    monkeypatch.setattr("workers.sandbox.host.open_cgroups", lambda _: None)
    with SandboxHost(run_dir / "bare", find_runsc(), filesystem, memory_bytes=1 << 30) as host:
        sandbox = host.take()
        yield sandbox, started(sandbox)
        host.discard(sandbox)


def test_without_control_groups_too_much_memory_is_the_functions_own_memory_error(
    bare: tuple[Sandbox, ExecutorConnection],
) -> None:
    sandbox, connection = bare
    sandbox.limit(memory_bytes=128 * MIB)

    def hold() -> int:
        fits = bytearray(100 * MIB)
        try:
            bytearray(100 * MIB)
        except MemoryError:
            return len(fits)
        return 0

    assert call(connection, hold).error is None
    result = call(connection, lambda: bytearray(200 * MIB))
    assert result.error is not None
    assert (result.error.code, result.error.type) == ("raised", "MemoryError")
    assert sandbox.exhausted() is None


def test_without_control_groups_the_workers_own_limit_holds_and_can_not_be_raised(
    bare: tuple[Sandbox, ExecutorConnection],
) -> None:
    sandbox, connection = bare
    sandbox.limit()

    def raise_it() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    for function in (lambda: bytearray(2 << 30), raise_it):
        result = call(connection, function)
        assert result.error is not None
        assert result.error.type in {"MemoryError", "ValueError"}


def test_without_control_groups_cpu_is_not_promised(bare: tuple[Sandbox, ExecutorConnection]) -> None:
    sandbox, _ = bare
    with pytest.raises(LimitError, match="can't bound CPU"):
        sandbox.limit(cpu=1.0)
