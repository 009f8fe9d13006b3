"""Whatever a function does to its sandbox ends its own call, with an error that says so, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import readie
from readie import MemoryLimitError, RemoteFunction, ResourceExhaustedError, SandboxDiedError, remote
from tests.local_stack import LocalStack, eventually

SECONDS = 60
MIB = 1 << 20

pytestmark = pytest.mark.usefixtures("stack")


@remote
def hold(mebibytes: int) -> int:
    return len([bytearray(b"x" * (1 << 20)) for _ in range(mebibytes)])


@remote
def hold_beside_pandas(mebibytes: int) -> int:
    import pandas as pd

    held = [bytearray(b"x" * (1 << 20)) for _ in range(mebibytes)]
    return len(pd.Series(range(len(held))))


@remote
def hold_on_tmp(mebibytes: int) -> int:
    with open("/tmp/file", "wb") as file:  # noqa: PTH123
        return sum(file.write(b"x" * (1 << 20)) for _ in range(mebibytes)) >> 20


@remote
def hold_in_a_child(mebibytes: int) -> None:
    import os
    import time

    if os.fork() == 0:
        held = [bytearray(b"x" * (1 << 20)) for _ in range(mebibytes)]
        os._exit(len(held) > 0)
    time.sleep(1000)  # as one that waits for an answer of its child


@pytest.mark.parametrize("function", [hold, hold_beside_pandas, hold_on_tmp, hold_in_a_child], ids=lambda f: f.__name__)
def test_out_of_memory_is_an_error_with_limit_and_peak(function: RemoteFunction[..., Any]) -> None:
    call = function.options(memory="256Mi").spawn(1000)
    with pytest.raises(MemoryLimitError, match=r"ran out of the memory of 256\.0 MiB") as caught:
        call.result(timeout=SECONDS)

    assert isinstance(caught.value, SandboxDiedError)
    assert caught.value.limit_bytes == 256 * MIB
    assert 200 * MIB < caught.value.peak_bytes < 260 * MIB, "counted in batches of pages"


def test_what_fits_the_limit_runs() -> None:
    for function in (hold, hold_beside_pandas, hold_on_tmp):
        assert function.options(memory="512Mi")(100) == 100


def test_a_call_may_ask_for_more_memory_than_others_get(stack: LocalStack) -> None:
    (worker,) = stack.status()["workers"]
    assert worker["slots"] == 4
    assert hold.options(memory="1Gi")(700) == 700


def test_memory_that_a_checkpoint_alone_needs_is_too_little() -> None:
    call = hold_beside_pandas.options(memory="64Mi", checkpoint_id="checkpoint_2").spawn(0)
    with pytest.raises(MemoryLimitError, match=r"64\.0 MiB.*memory="):
        call.result(timeout=SECONDS)
    assert call.report().start == "restored"


@remote
def turns_in_a_second() -> int:
    import time

    ends = time.monotonic() + 1
    turns = 0
    while time.monotonic() < ends:
        turns += 1
    return turns


def test_cpu_is_bounded() -> None:
    # Side by side, so that both meet the same load of the machine.
    free, bounded = turns_in_a_second.spawn(), turns_in_a_second.options(cpu=0.05).spawn()
    assert bounded.result(timeout=SECONDS) < 0.5 * free.result(timeout=SECONDS)


@remote
def end_the_process() -> None:
    import os

    os._exit(0)


@remote
def kill_itself() -> None:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


@remote
def crash_in_c() -> None:
    import ctypes

    ctypes.string_at(0)


@remote
def overflow_the_c_stack() -> str:
    import sys

    sys.setrecursionlimit(10**9)
    nested: list[Any] = []
    for _ in range(10**6):
        nested = [nested]
    return repr(nested)


@remote
def close_all_descriptors() -> None:
    import os

    os.closerange(0, 4096)


@remote
def write_to_all_descriptors(data: bytes) -> None:
    import contextlib
    import os

    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(descriptor, data)


@remote
def write_without_end() -> None:
    import contextlib
    import os

    while True:
        for descriptor in range(3, 16):
            with contextlib.suppress(OSError):
                os.write(descriptor, bytes(1 << 16))


@remote
def return_a_gibibyte() -> bytearray:
    return bytearray(1 << 30)


FRAME_OF_FOUR_GIB = b"\xff\xff\xff\xff\x11"
FRAME_OF_NO_RESULT = b"\x00\x00\x00\x02\x11{}"
FRAME_OF_GARBAGE = b"\x00\x00\x00\x04\x11\xff\xfe\xfd\xfc"


@pytest.mark.parametrize(
    ("function", "arguments", "error", "words"),
    [
        (end_the_process, (), SandboxDiedError, "ended its process"),
        (kill_itself, (), SandboxDiedError, "ended its process"),
        (crash_in_c, (), SandboxDiedError, "crashed it"),
        (overflow_the_c_stack, (), SandboxDiedError, "crashed it"),
        (close_all_descriptors, (), SandboxDiedError, "connection"),
        (write_to_all_descriptors, (b"garbage",), SandboxDiedError, "wrote to its connection"),
        (write_to_all_descriptors, (FRAME_OF_FOUR_GIB,), SandboxDiedError, "4294967295 bytes is above"),
        (write_to_all_descriptors, (FRAME_OF_NO_RESULT,), SandboxDiedError, "not as agreed"),
        (write_to_all_descriptors, (FRAME_OF_GARBAGE,), SandboxDiedError, "not JSON"),
        (write_without_end, (), SandboxDiedError, "wrote to its connection"),
        (return_a_gibibyte, (), ResourceExhaustedError, "above this worker's limit"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_broken_sandbox_ends_its_own_call_alone(
    stack: LocalStack,
    function: RemoteFunction[..., Any],
    arguments: tuple[bytes, ...],
    error: type[readie.ReadieError],
    words: str,
) -> None:
    worker = stack.pid("worker1")
    neighbour = count_for_a_while.spawn()
    call = function.spawn(*arguments)
    with pytest.raises(error, match=re.escape(words)):
        call.result(timeout=SECONDS)

    assert neighbour.result(timeout=SECONDS) == "counted"
    assert hold(1) == 1
    assert stack.pid("worker1") == worker


@remote
def count_for_a_while() -> str:
    import time

    ends = time.monotonic() + 1
    while time.monotonic() < ends:
        pass
    return "counted"


@remote
def fork_and_return() -> str:
    """A fork that the function forgets about: its child returns, too."""
    import os

    os.fork()
    return "once"


@remote
def fork_until_refused() -> None:
    import os
    import time

    while True:
        if os.fork() == 0:
            time.sleep(1000)


@remote
def start_threads_until_refused() -> None:
    import threading
    import time

    while True:
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()


@remote
def open_files_until_refused() -> None:
    import os

    while True:
        os.dup(1)


@remote
def fill_the_disk() -> None:
    with open("/tmp/file", "wb", buffering=0) as file:  # noqa: PTH123
        while True:
            file.write(bytes(1 << 23))


@remote
def recurse() -> None:
    def again() -> None:
        again()

    again()


def test_a_limit_that_the_function_meets_inside_is_its_own_error() -> None:
    generous = {"memory": "8Gi"}
    with pytest.raises(OSError, match="Resource temporarily unavailable"):
        fork_until_refused.options(**generous)()  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="can't start new thread"):
        start_threads_until_refused()
    with pytest.raises(OSError, match="Too many open files"):
        open_files_until_refused()
    with pytest.raises(OSError, match="No space left on device"):
        fill_the_disk()
    with pytest.raises(RecursionError):
        recurse()
    assert fork_and_return() == "once"


@remote
def bomb() -> None:
    import contextlib
    import os

    while True:
        with contextlib.suppress(OSError):
            os.fork()


@remote
def print_without_end() -> None:
    import sys

    while True:
        sys.stdout.write("x" * 10_000)


@remote
def stop_itself() -> None:
    import os
    import signal

    while True:
        # Again, for a sandbox that waited is woken with a SIGCONT, which gVisor may hand on a little later.
        os.kill(os.getpid(), signal.SIGSTOP)


@remote
def compute_in_c() -> int:
    return int(pow(3, 10**9))  # one instruction of Python's, which looks at no signal meanwhile


@remote
def sleep_in_c() -> None:
    import time

    time.sleep(1000)


@remote
def catch_everything() -> None:
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass


@pytest.mark.parametrize(
    "function",
    [bomb, print_without_end, stop_itself, compute_in_c, sleep_in_c, catch_everything],
    ids=lambda f: f.__name__,
)
def test_what_never_ends_is_stopped_at_its_timeout(stack: LocalStack, function: RemoteFunction[..., Any]) -> None:
    timeout = 2.0
    worker = stack.pid("worker1")
    neighbour = count_for_a_while.spawn()
    call = function.options(timeout=timeout, memory="512Mi").spawn()
    expected = (MemoryLimitError, readie.CallTimeoutError) if function is bomb else readie.CallTimeoutError
    with pytest.raises(expected):
        call.result(timeout=SECONDS)

    phases = call.report().phases
    assert phases.get("load", 0.0) + phases["execute"] < 1.25 * timeout
    assert neighbour.result(timeout=SECONDS) == "counted"
    assert hold(1) == 1
    assert stack.pid("worker1") == worker


def test_output_that_cannot_be_written_is_the_functions_own_affair() -> None:
    @remote
    def without_output() -> str:
        import sys

        sys.stdout.close()
        sys.stdout = sys.stderr = None  # type: ignore[assignment]
        return "returned"

    assert without_output() == "returned"


def test_an_option_that_is_no_limit_is_refused_before_anything_is_sent() -> None:
    for options, words in (
        ({"memory": "lots"}, "write a size as 2Gi"),
        ({"memory": "10Mi"}, "at least 64Mi"),
        ({"memory": True}, "give a size"),
        ({"cpu": 0}, "number of cores"),
        ({"cpu": "2"}, "number of cores"),
    ):
        with pytest.raises(readie.ConfigurationError, match=words):
            hold.options(**options)  # type: ignore[arg-type]


def test_every_sandbox_has_its_control_group_and_every_group_its_sandbox(stack: LocalStack) -> None:
    assert hold(1) == 1
    records = list(stack.run_folder.glob("worker1/*/cgroups"))
    assert records

    def in_step() -> bool:
        sandboxes = {path.parent.name for record in records for path in record.parent.glob("*/control")}
        return all(
            sandboxes == {path.name for path in Path(folder).iterdir() if path.is_dir()}
            for record in records
            for folder in record.read_text().splitlines()
        )

    eventually(in_step, "groups and sandboxes are the same")
