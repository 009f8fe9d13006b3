"""A function that takes its executor over and speaks in its place: what it sends can harm nobody but its own caller."""

from __future__ import annotations

import base64
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.result import AsyncResult

import readie
from readie import CallCancelledError, CallTimeoutError, RemoteError, ResourceExhaustedError, SandboxDiedError, remote
from readie.errors import SerializationError
from readie.protocol.payload import Pickled, encode
from tests.local_stack import LocalStack, eventually
from workers.executor.wire import MAX_JSON_BYTES, Kind

SECONDS = 60
OK = {"outcome": "ok", "load_seconds": 0.0, "execute_seconds": 0.0, "dump_seconds": 0.0, "error": None}
ERROR = {"code": "raised", "type": "E", "module": "m", "bases": [], "message": "", "traceback": ""}

pytestmark = pytest.mark.usefixtures("stack")


@remote
def send(data: bytes, *, endless: bool = False, then_sleep: bool = True) -> str:
    """Send bytes to the worker on the executor's own connection."""
    import os
    import socket
    import time

    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            connection = socket.socket(fileno=os.dup(int(name)))
            connection.getpeername()
        except OSError:
            continue
        connection.setblocking(True)
        connection.sendall(data)
        while endless:
            connection.sendall(data)
        if then_sleep:
            time.sleep(1000)
        return "sent"
    return "found no connection"


class _Bomb:
    """Writes to a file of the host wherever it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = str(marker)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return exec, (f"open({self._marker!r}, 'w').close()",)


def frame(kind: int, content: bytes | dict[str, Any]) -> bytes:
    payload = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack(">IB", len(payload), kind) + payload


def error(**fields: object) -> dict[str, Any]:
    return {**OK, "outcome": "error", "error": {**ERROR, **fields}}


@pytest.mark.parametrize("outcome", ["ok", "error"])
def test_nobody_but_the_caller_loads_what_a_function_sends(tmp_path: Path, stack: LocalStack, outcome: str) -> None:
    marker = tmp_path / "loaded"
    bomb = pickle.dumps(_Bomb(marker))
    text = base64.b64encode(bomb).decode()
    head = OK if outcome == "ok" else error(type="Bomb", message=text, traceback=text, bases=["builtins.ValueError"])
    call = send.spawn(frame(Kind.RESULT, head) + frame(Kind.VALUE, b"".join(encode([Pickled(bomb)]))))

    assert call.report().start, "the worker took it for a result"
    assert stack.run("logs", call.id).returncode == 0
    assert AsyncResult(call.id, app=Celery(backend=stack.redis_url)).state
    assert not marker.exists(), "neither a worker, a router nor who looks at the call loads it"

    if outcome == "ok":
        assert call.result(timeout=SECONDS) is None
    else:
        with pytest.raises(RemoteError, match=r"m\.Bomb"):
            call.result(timeout=SECONDS)
    assert marker.exists(), "the caller loads the answer of its own function"


def test_a_value_that_was_not_asked_for_is_loaded_by_nobody(tmp_path: Path) -> None:
    marker = tmp_path / "loaded"
    call = send.spawn(frame(Kind.YIELD, b"".join(encode([Pickled(pickle.dumps(_Bomb(marker)))]))))
    with pytest.raises(SandboxDiedError, match="not asked for"):
        call.result(timeout=SECONDS)
    assert not marker.exists()


HOSTILE = {
    "no frame": b"GET / HTTP/1.1\r\n\r\n",
    "a kind that there is not": frame(255, b""),
    "a frame for executors": frame(Kind.PAYLOAD, b""),
    "a second greeting": frame(Kind.HELLO, {"wire": 3}),
    "a value without a result": frame(Kind.VALUE, b"x"),
    "no JSON": frame(Kind.RESULT, b"\xff\xfe"),
    "no object": frame(Kind.RESULT, b"[1]"),
    "deep JSON": frame(Kind.RESULT, b"[" * 1_000_000),
    "a number of a million digits": frame(Kind.RESULT, b'{"load_seconds": ' + b"9" * 1_000_000 + b"}"),
    "no outcome": frame(Kind.RESULT, {}),
    "an error that is none": frame(Kind.RESULT, {**OK, "outcome": "error"}) + frame(Kind.VALUE, b""),
    "a value beside an error": frame(Kind.RESULT, {**OK, "error": ERROR}) + frame(Kind.VALUE, b""),
    "an error of another kind": frame(Kind.RESULT, error(code="memory_limit")) + frame(Kind.VALUE, b""),
    "time that is no number": frame(Kind.RESULT, json.dumps({**OK, "load_seconds": float("nan")}).encode()),
    "time that ran backwards": frame(Kind.RESULT, {**OK, "execute_seconds": -1e300}),
    "an endless name": frame(Kind.RESULT, error(type="x" * 1_000_000)),
    "an endless message": frame(Kind.RESULT, error(message="x" * 1_000_000)),
    "endless bases": frame(Kind.RESULT, error(bases=["x"] * 1000)),
    "a result that says it is larger than any may be": struct.pack(">IB", MAX_JSON_BYTES + 1, Kind.RESULT),
    "a value that says it is larger than all memory": frame(Kind.RESULT, OK)
    + struct.pack(">IB", 2**32 - 1, Kind.VALUE),
}


@remote
def double(number: int) -> int:
    return 2 * number


def test_what_is_not_as_agreed_ends_its_own_call_alone(stack: LocalStack) -> None:
    worker = stack.pid("worker1")
    memory = resident_bytes(worker)
    calls = {name: send.spawn(data) for name, data in HOSTILE.items()}
    assert [double.spawn(number).result(timeout=SECONDS) for number in range(3)] == [0, 2, 4]
    for name, call in calls.items():
        with pytest.raises((SandboxDiedError, ResourceExhaustedError)) as caught:
            call.result(timeout=SECONDS)
        assert len(str(caught.value)) < 2000, name
    assert stack.pid("worker1") == worker
    assert resident_bytes(worker) < memory + (256 << 20), "what a frame says of its size is not believed"


def test_frames_without_end_end_with_the_call() -> None:
    """Values that never end are refused; half a frame waits, until the timeout or until its call is cancelled."""
    for endless in (frame(Kind.YIELD, b"x"), frame(Kind.RESULT, {})):
        with pytest.raises(SandboxDiedError):
            send.spawn(endless, endless=True).result(timeout=SECONDS)

    half = frame(Kind.RESULT, OK)[:-3]
    with pytest.raises(CallTimeoutError):
        send.options(timeout=1)(half)

    call = send.spawn(half)
    eventually(lambda: call.status().state == "running", "the call runs")
    assert call.cancel()
    with pytest.raises(CallCancelledError):
        call.result(timeout=SECONDS)


def test_a_strange_value_is_an_error_of_its_caller_alone() -> None:
    for value in (b"", b"RDPK", b"x" * 100, b"".join(encode([Pickled(b"not a pickle")]))):
        with pytest.raises(SerializationError, match="can't be unpickled here"):
            send(frame(Kind.RESULT, OK) + frame(Kind.VALUE, value))


@remote
def raise_half_a_character() -> None:
    raise ValueError("half \ud800")


def test_half_characters_in_an_error_reach_the_caller() -> None:
    with pytest.raises(ValueError, match="half") as caught:
        raise_half_a_character()
    assert r"ValueError: half \ud800" in caught.value.remote_traceback  # type: ignore[attr-defined]


def test_what_a_function_left_on_the_connection_reaches_no_other_session() -> None:
    """A session's functions could always change what its later calls give: they share its executor."""
    with readie.session() as session, readie.session() as other:
        forged = 2 * (frame(Kind.RESULT, OK) + frame(Kind.VALUE, b"forged"))
        with pytest.raises(SerializationError):
            send.options(session=session)(forged, then_sleep=False)
        assert double.options(session=other)(2) == 4
        assert double(3) == 6


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
