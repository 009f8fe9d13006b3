"""What a caller is told when a sandbox ended; the ends themselves are made in ``tests/system/test_limits.py``."""

from types import SimpleNamespace
from typing import Any

import pytest

from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import Failure
from workers.sandbox.cgroup import LimitError, MemoryHeldError
from workers.sandbox.connection import ConnectionLostError
from workers.sandbox.sandbox import Exhausted
from workers.sandbox_death import failure_of_death, failure_of_limit

MIB = 1 << 20


def died(exhausted: Exhausted | None) -> Failure:
    sandbox: Any = SimpleNamespace(exhausted=lambda: exhausted)
    return failure_of_death(sandbox, ConnectionLostError("the connection was closed"))


@pytest.mark.parametrize(
    ("exhausted", "code", "words"),
    [
        (None, ErrorCode.SANDBOX_DIED, "the connection was closed"),
        (Exhausted("processes", 60, 0), ErrorCode.SANDBOX_DIED, "more than 60 processes"),
        (Exhausted("memory", 256 * MIB, 256 * MIB), ErrorCode.MEMORY_LIMIT, "the memory of 256.0 MiB"),
        (Exhausted("memory", 256 * MIB, 100 * MIB), ErrorCode.MEMORY_LIMIT, "left on the worker's machine"),
        (Exhausted("memory", None, 100 * MIB), ErrorCode.MEMORY_LIMIT, "it held 100.0 MiB at most"),
    ],
)
def test_the_reason_names_what_ran_out(exhausted: Exhausted | None, code: ErrorCode, words: str) -> None:
    failure = died(exhausted)
    assert failure.code is code
    assert words in failure.message


def test_limit_and_peak_travel_with_the_failure() -> None:
    failure = died(Exhausted("memory", 256 * MIB, 255 * MIB))
    assert (failure.limit_bytes, failure.peak_bytes) == (256 * MIB, 255 * MIB)


def test_a_limit_that_can_not_be_set_says_which_option_to_change() -> None:
    held = failure_of_limit(64 * MIB, MemoryHeldError("it holds 104857600 bytes: busy"))
    assert (held.code, held.limit_bytes) == (ErrorCode.MEMORY_LIMIT, 64 * MIB)
    assert "64.0 MiB" in held.message
    assert "memory=" in held.message
    unbounded = failure_of_limit(None, LimitError("this worker can't bound CPU"))
    assert unbounded.code is ErrorCode.RESOURCE_EXHAUSTED
    assert "without cpu=" in unbounded.message
