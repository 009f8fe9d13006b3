"""Releases run side by side during an upgrade: what each wrote, this one reads, and it writes no less than they did.

``golden/`` has a file for each release, made by ``python -m tests.protocol.written``.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel
from redis import Redis

from readie import RemoteError
from readie.ledger.result import decode_result
from readie.ledger.sessions import Joining, Owner, SessionLedger, Waits
from readie.ledger.streams import StreamLedger
from readie.monitoring.endpoint import Monitoring
from readie.outcome import exception_of
from readie.pickling import load_value
from readie.protocol import keys, reading
from readie.protocol.announcement import Announcement
from readie.protocol.call import PROTOCOL_VERSION, CallHeader
from readie.protocol.catalogue import Catalogue
from readie.protocol.codes import ErrorCode
from readie.protocol.dead_letter import DeadLetter
from readie.protocol.envelope import CallState, Envelope, Failure, Report
from readie.protocol.explain import ExplainAnswer, ExplainRequest
from readie.protocol.session import SessionState
from readie.protocol.task import HEADER
from readie.replies import Replies
from router.__main__ import build
from router.settings import RouterSettings
from tests.protocol import written
from workers.executor import wire
from workers.executor.wire import Kind
from workers.sandbox.output import OutputPipe

RELEASES = sorted(written.GOLDEN.glob("*.json"))
assert RELEASES


@pytest.fixture(params=RELEASES, ids=lambda path: path.stem)
def golden(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What one release has written."""
    messages: dict[str, Any] = json.loads(request.param.read_text())
    return messages


@pytest.fixture
def ledger(redis: Redis) -> SessionLedger:
    return SessionLedger(redis)


def claimed_header(redis: Redis) -> CallHeader:
    """Take the next message off the worker's queue, as a worker does."""
    popped = redis.blpop([keys.worker_queue(written.WORKER)], timeout=20)
    assert popped
    _, header = reading.read(popped[1])
    assert isinstance(header, CallHeader)
    return header


def test_a_call_of_a_client_and_a_worker_of_that_release_goes_through_todays_router(
    golden: dict[str, Any], ledger: SessionLedger, redis_url: str
) -> None:
    written.put(ledger.redis, golden["redis"]["submitted"])
    service = build(RouterSettings(redis_url=redis_url), Monitoring(lease_seconds=6))
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        header = claimed_header(ledger.redis)
    finally:
        service.stop()
        ledger.redis.lpush(keys.SUBMIT_QUEUE, keys.WAKE)
        thread.join(20)
    assert header.placement is not None
    assert (header.placement.worker, header.placement.checkpoint_id) == (written.WORKER, "checkpoint_1")
    assert header.hints.imports == ("numpy", "pandas.DataFrame")
    assert ledger.claim(header)


def test_a_call_that_was_placed_by_a_router_of_that_release_begins_in_todays_worker(
    golden: dict[str, Any], ledger: SessionLedger
) -> None:
    written.put(ledger.redis, golden["redis"]["placed"])
    header = claimed_header(ledger.redis)
    claim = ledger.claim(header)
    assert claim is not None
    assert claim[0].begun == 1
    assert ledger.finish(Envelope(id="call", state=CallState.DONE), attempt=1, keep_seconds=60)


def test_a_call_that_runs_in_a_worker_of_that_release_is_read_and_ended_by_todays_processes(
    golden: dict[str, Any], redis: Redis
) -> None:
    ledger = StreamLedger(redis)
    written.put(redis, golden["redis"]["running"])
    assert ledger.read_output("call", 0, None).pieces == [(0, b"line\n")]
    assert ledger.take_values("call", "reader").values == [b"value"]
    assert ledger.publish_value("call", 1, 2, b"more", 9)
    assert ledger.retry("call", 1, 0.0, "because")
    assert ledger.state("call")[0] is CallState.QUEUED


def test_todays_client_reads_results_of_that_release(golden: dict[str, Any], redis: Redis) -> None:
    written.put(redis, golden["redis"]["done"])
    watch = StreamLedger(redis).watch("call", "client")
    assert watch.result is not None
    done = decode_result(watch.result)
    assert (done.state, done.value, done.report.start, done.report.yielded) == (
        CallState.DONE,
        "dmFsdWU=",
        "restored",
        1,
    )
    failed, cancelled = (
        decode_result(json.dumps(golden["results"][name]).encode()) for name in ("failed", "cancelled")
    )
    assert failed.failure is not None
    error = exception_of(failed.failure, None)
    assert isinstance(error, RemoteError)
    assert "ZeroDivisionError" in error.remote_traceback
    assert cancelled.state is CallState.CANCELLED


def test_todays_router_and_worker_go_on_with_a_session_of_that_release(
    golden: dict[str, Any], ledger: SessionLedger
) -> None:
    written.put(ledger.redis, golden["redis"]["session"])
    (record,) = ledger.sessions()
    assert (record.state, record.worker, record.checkpoint_id, record.waiting) == (
        SessionState.BUSY,
        written.WORKER,
        "checkpoint_1",
        1,
    )
    content = ledger.redis.hget(keys.message("second"), "submitted")
    assert isinstance(content, bytes)
    third = CallHeader.model_validate(json.loads(content)["headers"][HEADER]).model_copy(update={"id": "third"})
    ledger.submit("third", content.decode(), "client")
    (joined,) = ledger.join_all("router", 10, [Joining(third, 1, b"")])
    assert isinstance(joined, Owner)
    (joined,) = ledger.join_all("router", 10, [Joining(third, 1, b"", joined.sandbox, "third's")])
    assert joined == Waits()
    assert ledger.finish(Envelope(id="opener", state=CallState.DONE), attempt=1, keep_seconds=60)
    assert ledger.redis.rpop(keys.session_queue(written.SANDBOX)) == b"second's"
    assert ledger.end_session(written.SESSION, SessionState.CLOSED, "was closed")


def test_todays_executor_answers_a_worker_of_that_release_and_the_reverse(golden: dict[str, Any]) -> None:
    kept = golden["executor"]
    if kept["wire"] != wire.WIRE_VERSION:
        ours, theirs = socket.socketpair()
        theirs.sendall(bytes.fromhex(kept["from_executor"]))
        with pytest.raises(wire.WireError, match="speaks wire version"):
            written.talk(ours, OutputPipe())
        return
    with written.executor() as (connection, _):
        wire.read_json(connection, Kind.HELLO)
        connection.sendall(bytes.fromhex(kept["from_worker"]))
        values = [load_value(wire.read_frame(connection, Kind.YIELD, max_bytes=1 << 20).payload) for _ in range(3)]
        assert wire.read_json(connection, Kind.RESULT)["outcome"] == "ok"
        assert values == [1, 2, 3]
        assert load_value(wire.read_frame(connection, Kind.VALUE, max_bytes=1 << 20).payload) is None
    ours, theirs = socket.socketpair()
    theirs.sendall(bytes.fromhex(kept["from_executor"]))
    result, containers = written.talk(ours, OutputPipe())
    assert result.outcome == "ok"
    assert [load_value(container) for container in containers] == [1, 2, 3]


def test_nothing_is_missing_from_what_todays_processes_write(golden: dict[str, Any], redis: Redis) -> None:
    if golden["protocol"] != PROTOCOL_VERSION:
        pytest.skip("another version need not be readable by that release")
    todays = written.messages(redis)
    del golden["executor"], todays["executor"]
    assert list(missing(golden, todays)) == []


def missing(theirs: Any, ours: Any, where: str = "") -> Iterator[str]:
    """Yield what one release has written and another has not, or as another kind of value."""
    theirs, ours = _parsed(theirs), _parsed(ours)
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name, value in theirs.items():
            # A catalogue's name is its digest, which a new field changes.
            known = next((other for other in ours if other.startswith(keys.catalogue(""))), name)
            known = known if name.startswith(keys.catalogue("")) else name
            if known not in ours:
                yield f"{where}.{name} is missing"
            else:
                yield from missing(value, ours[known], f"{where}.{name}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) <= len(ours):
        for number, (value, other) in enumerate(zip(theirs, ours, strict=False)):
            yield from missing(value, other, f"{where}[{number}]")
    elif type(theirs) is not type(ours):
        yield f"{where} was {theirs!r} and is {ours!r}"


def _parsed(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in {"{", "["}:
        return json.loads(value)
    return value


def with_surprises(value: Any) -> Any:
    """Return a message with a field more in every object of it, but for what a caller asks for."""
    if isinstance(value, list):
        return [with_surprises(item) for item in value]
    if not isinstance(value, dict):
        return value
    asked = {"options", "session"}
    changed = {name: item if name in asked else with_surprises(item) for name, item in value.items()}
    # Dictionaries by name (modules, phases) are no objects with fields.
    return changed if value.keys() & {"numpy", "queue"} else {**changed, "surprise": {"new": True}}


def stored(messages: dict[str, Any], key: str, field: str | None = None) -> Any:
    """Return what a release keeps in Redis as JSON."""
    _, value = next(item for name, item in messages["redis"]["submitted"].items() if name.startswith(key))
    return json.loads(value if field is None else value[field])


READ: dict[str, tuple[type[BaseModel], Callable[[dict[str, Any]], Any]]] = {
    "header": (CallHeader, lambda messages: json.loads(messages["submit"])["headers"][HEADER]),
    "header with placement": (CallHeader, lambda messages: json.loads(messages["to_worker"])["headers"][HEADER]),
    "announcement": (Announcement, lambda messages: stored(messages, keys.worker(""), "announcement")),
    "catalogue": (Catalogue, lambda messages: stored(messages, keys.catalogue(""))),
    "result": (Envelope, lambda messages: messages["results"]["call"]["result"]),
    "failed result": (Envelope, lambda messages: messages["results"]["failed"]["readie"]),
    "question": (ExplainRequest, lambda messages: messages["question"]),
    "answer": (ExplainAnswer, lambda messages: messages["answer"]),
    "dead letter": (DeadLetter, lambda messages: messages["dead_letter"]),
}


@pytest.mark.parametrize(("model", "of"), READ.values(), ids=READ)
def test_what_a_newer_release_adds_is_left_out_of_account(
    golden: dict[str, Any], model: type[BaseModel], of: Callable[[dict[str, Any]], Any]
) -> None:
    message = of(golden)
    assert model.model_validate_json(json.dumps(with_surprises(message))) == model.model_validate(message)


@pytest.mark.parametrize("asked", ["options", "session"])
def test_an_option_that_only_a_newer_release_knows_is_refused_with_what_to_do(
    golden: dict[str, Any], asked: str
) -> None:
    message = json.loads(golden["submit"])
    header = message["headers"][HEADER]
    header.setdefault("session", {"id": "s", "idle_ttl_seconds": 1.0})
    header[asked]["surprise"] = 1
    with pytest.raises(reading.UnreadableError, match="not known to this release: upgrade workers and routers before"):
        reading.read(json.dumps(message).encode())


def test_a_newer_version_of_the_protocol_is_refused_with_what_to_do(golden: dict[str, Any]) -> None:
    message = json.loads(golden["submit"])
    message["headers"][HEADER]["protocol"] = PROTOCOL_VERSION + 1
    with pytest.raises(reading.UnreadableError, match=r"newer than \d+.*: upgrade workers and routers before clients"):
        reading.read(json.dumps(message).encode())


def test_an_error_that_only_a_newer_release_knows_reaches_the_caller_with_its_message() -> None:
    failure = Failure.model_validate({"code": "too_hot", "message": "the machine is too hot"})
    assert failure.code is ErrorCode.OTHER
    assert "too hot" in str(exception_of(failure, None))


def test_a_result_that_can_not_be_read_ends_the_wait_for_it_with_an_error(redis: Redis) -> None:
    ledger = StreamLedger(redis)
    replies = Replies(redis, ledger)
    future = replies.expect("call")
    ledger.submit("call", "", replies.client_id)
    replies.submitted("call")
    report = Report().model_copy(update={"start": "thawed"})
    ledger.finish(Envelope(id="call", state=CallState.DONE, report=report), attempt=0, keep_seconds=60)
    error = future.exception(timeout=20)
    replies.close()
    assert "upgrade this client" in str(error)
