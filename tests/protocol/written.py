"""Everything that clients, routers, workers and executors of this release write to each other, as they write it.

``python -m tests.protocol.written`` keeps it as the golden messages of this release, for those to come.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kombu import Connection
from redis import Redis

from readie.ledger.routing import Addressed
from readie.ledger.sessions import Joining, SessionLedger
from readie.ledger.streams import StreamLedger
from readie.pickling import pickle_call
from readie.protocol import keys, task
from readie.protocol.announcement import Announcement
from readie.protocol.call import (
    PROTOCOL_VERSION,
    CallHeader,
    CallOptions,
    ImportHints,
    Placement,
    RetryPolicy,
    SessionUse,
)
from readie.protocol.catalogue import Catalogue, Checkpoint, Cost, Module
from readie.protocol.codes import ErrorCode
from readie.protocol.context import ModuleSource, pack_modules
from readie.protocol.dead_letter import DeadLetter
from readie.protocol.envelope import CallState, Envelope, Failure, Report
from readie.protocol.explain import ExplainAnswer, ExplainRequest, StartCost
from readie.protocol.signing import Keyring
from router.message import CallMessage, MessageFormat
from tests.conftest import RedisServer
from tests.executor.executor_process import Executor
from workers.executor import wire
from workers.sandbox.connection import ExecutorConnection
from workers.sandbox.conversation import Credit, Deaf
from workers.sandbox.output import OutputPipe

GOLDEN = Path(__file__).parent / "golden"
WORKER = "worker1@golden"
INCARNATION = "incarnation"
SANDBOX = "sandbox"
SESSION = "session"
CLIENT = "client"
_CATALOGUE = Catalogue(
    generation="20260101T000000-abc",
    flavor="default",
    python="3.11",
    filesystem_digest="0" * 64,
    cost=Cost(restore_base_seconds=0.1, restore_seconds_per_megabyte=0.001, cold_base_seconds=0.3),
    modules={
        "numpy": Module(import_seconds=0.2, megabytes=20),
        "pandas": Module(import_seconds=0.5, megabytes=40, dependencies=("numpy",)),
    },
    checkpoints=(
        Checkpoint(id="checkpoint_0", imported=(), holds=(), megabytes=12, restore_seconds=0.1),
        Checkpoint(
            id="checkpoint_1",
            imported=("pandas",),
            holds=("numpy", "pandas"),
            megabytes=60,
            restore_seconds=0.2,
            residual_seconds=0.01,
        ),
    ),
)
_ANNOUNCEMENT = Announcement(
    name=WORKER,
    incarnation=INCARNATION,
    pid=1,
    slots=4,
    max_sessions=3,
    evicts_idle_sessions=True,
    flavor="default",
    python="3.11",
    runsc_version="release-20260101.0",
    generation=_CATALOGUE.generation,
    catalogue=_CATALOGUE.digest(),
    checkpoints=("checkpoint_0", "checkpoint_1"),
    memory_bytes=8 << 30,
    call_memory_bytes=1 << 30,
)
_FAILURE = Failure(
    code=ErrorCode.REMOTE,
    message="division by zero",
    type="builtins.ZeroDivisionError",
    bases=("builtins.ZeroDivisionError", "builtins.ArithmeticError", "builtins.Exception"),
    traceback="Traceback (most recent call last):\nZeroDivisionError: division by zero\n",
    flavor="default",
)


def _header(call_id: str, session: SessionUse | None = None) -> CallHeader:
    return CallHeader(
        protocol=PROTOCOL_VERSION,
        id=call_id,
        name="module.function",
        python="3.11",
        hints=ImportHints(imports=("numpy", "pandas.DataFrame"), models=("m",), tokenizers=("t",), datasets=("d",)),
        options=CallOptions(
            timeout_seconds=60.0,
            expires_seconds=1e9,
            priority=3,
            memory_bytes=1 << 30,
            cpu=1.5,
            packages=("httpx>=0.28",),
            retries=None if session else RetryPolicy(times=2, after=("builtins.OSError",), delay_seconds=0.5),
        ),
        session=session,
        client="somebody",
        payload_bytes=7,
        payload_by_reference=False,
        streams=session is None,
    )


def _report() -> Report:
    return Report(
        worker=WORKER,
        start="restored",
        checkpoint_id="checkpoint_1",
        pool="ready",
        attempt=1,
        reason="lowest predicted start",
        packages="found",
        predicted_seconds=0.16,
        output_bytes=5,
        yielded=1,
        phases={"queue": 0.1, "execute": 0.2},
    )


def messages(redis: Redis) -> dict[str, Any]:
    """Return all messages, JSON; ``redis`` is emptied."""
    redis.flushdb()
    ledger, streams = SessionLedger(redis), StreamLedger(redis)
    written: dict[str, Any] = {"protocol": PROTOCOL_VERSION, "redis": {}}

    def remember(moment: str) -> None:
        written["redis"][moment] = content(redis)

    ledger.publish_catalogue(_CATALOGUE)
    ledger.announce(_ANNOUNCEMENT, 100, {None: 1, "checkpoint_1": 2})
    header = _header("call")
    written["submit"] = item = task.encode(header, task.encode_body(b"payload"), "client@host")
    ledger.submit("call", item, CLIENT, None, header.options.expires_seconds, listens=True)
    remember("submitted")

    with Connection(redis_url(redis)) as connection:
        read = MessageFormat(connection, Keyring(), 0).read(item.encode())
        assert isinstance(read, CallMessage)
        placement = Placement(
            worker=WORKER,
            incarnation=INCARNATION,
            attempt=1,
            checkpoint_id="checkpoint_1",
            reason="lowest predicted start",
            predicted_seconds=0.16,
            route_seconds=0.001,
        )
        placed, written["to_worker"] = MessageFormat(connection, Keyring(), 0).readdress(read, placement)
    ledger.place_all("router", [Addressed(placed, written["to_worker"], item.encode())])
    remember("placed")

    assert ledger.claim(placed, "token")
    streams.publish_output("call", 1, 0, b"line\n", 1 << 20)
    streams.publish_value("call", 1, 1, b"value", 5)
    remember("running")

    ended = Envelope(id="call", state=CallState.DONE, value="dmFsdWU=", value_bytes=5, report=_report())
    assert ledger.finish(ended, attempt=1, keep_seconds=600)
    remember("done")
    ledger.submit("failed", "", CLIENT)
    ledger.finish(
        ended.model_copy(update={"id": "failed", "state": CallState.FAILED, "failure": _FAILURE}),
        attempt=0,
        keep_seconds=600,
    )
    ledger.submit("cancelled", "", CLIENT)
    ledger.cancel("cancelled")
    written["results"] = {
        call_id: json.loads(redis.get(keys.result(call_id)) or b"") for call_id in ("call", "failed", "cancelled")
    }

    redis.flushdb()
    ledger.announce(_ANNOUNCEMENT, 100)
    opener = _header("opener", SessionUse(id=SESSION, idle_ttl_seconds=300.0, restart_on_loss=True))
    ledger.submit("opener", task.encode(opener, task.encode_body(b"payload"), "client@host"), CLIENT)
    ledger.join_all("router", 10, [Joining(opener, 1, b"")])
    opened = opener.model_copy(update={"placement": placement})
    ledger.place_all("router", [Addressed(opened, "opener's", b"")])
    assert ledger.claim(opened)
    assert ledger.bind(opened, SANDBOX, "checkpoint_1", "default", "3.11")
    second = opener.model_copy(update={"id": "second"})
    ledger.submit("second", task.encode(second, task.encode_body(b"payload"), "client@host"), CLIENT)
    ledger.join_all("router", 10, [Joining(second, 1, b"", SANDBOX, "second's")])
    remember("session")

    request = ExplainRequest(task="readie.explain", id="question", header=header)
    written["question"] = request.model_dump(mode="json", exclude_defaults=True)
    start = StartCost(
        checkpoint_id="checkpoint_1", base_seconds=0.1, size_seconds=0.06, import_seconds=0.2, missing=("numpy",)
    )
    written["answer"] = ExplainAnswer(
        hints=header.hints,
        resolved=("pandas",),
        unknown=("x",),
        worker=WORKER,
        generation="g",
        starts=(start,),
        checkpoint_id="checkpoint_1",
        predicted_seconds=0.36,
        reason="lowest predicted start",
        failure=_FAILURE,
    ).model_dump(mode="json")
    written["dead_letter"] = DeadLetter.of(b"garbage", keys.SUBMIT_QUEUE, "not JSON").model_dump(mode="json")
    written["executor"] = frames()
    return written


def redis_url(redis: Redis) -> str:
    """Return the URL of a client's server."""
    options = redis.connection_pool.connection_kwargs
    return f"redis://{options['host']}:{options['port']}/{options['db']}"


def content(redis: Redis) -> dict[str, Any]:
    """Return all that Redis holds, as JSON."""
    read = {
        "string": redis.get,
        "hash": redis.hgetall,
        "list": lambda name: redis.lrange(name, 0, -1),
        "set": lambda name: sorted(redis.smembers(name)),
        "zset": lambda name: redis.zrange(name, 0, -1, withscores=True),
        "stream": redis.xrange,
    }
    names = sorted(redis.scan_iter())
    return {name.decode(): [kind := redis.type(name).decode(), _text(read[kind](name))] for name in names}


def put(redis: Redis, kept: dict[str, Any]) -> None:
    """Make Redis hold what :func:`content` returned, the worker alive."""
    redis.flushdb()
    for name, (kind, value) in kept.items():
        match kind:
            case "string":
                redis.set(name, value)
            case "hash":
                redis.hset(name, mapping=value)
            case "list":
                redis.rpush(name, *value)
            case "set":
                redis.sadd(name, *value)
            case "zset":
                redis.zadd(name, dict(value))
            case "stream":
                for entry, fields in value:
                    redis.xadd(name, fields, id=entry)
    seconds, _ = redis.time()
    redis.zadd(keys.WORKERS, {WORKER: seconds + 1000})


def _text(value: Any) -> Any:
    match value:
        case bytes():
            return value.decode()
        case dict():
            return {_text(name): _text(item) for name, item in value.items()}
        case list() | tuple():
            return [_text(item) for item in value]
    return value


class _Recorded(socket.socket):
    """A socket that keeps what went through it."""

    def __init__(self, other: socket.socket) -> None:
        super().__init__(fileno=other.detach())
        self.sent, self.received = bytearray(), bytearray()

    def sendmsg(self, pieces: Any, *rest: Any) -> int:
        sent = super().sendmsg(pieces, *rest)
        self.sent += b"".join(bytes(piece) for piece in pieces)[:sent]
        return sent

    def recv_into(self, buffer: Any, *rest: Any) -> int:
        count = super().recv_into(buffer, *rest)
        self.received += memoryview(buffer)[:count]
        return count


class _Reader(Deaf):
    """Wants every value, at once."""

    credit = Credit(values=10, bytes=1 << 20, stop=False)

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self._never = os.eventfd(0)

    def fileno(self) -> int:
        return self._never

    def close(self) -> None:
        os.close(self._never)

    def yielded(self, container: Any) -> None:
        self.values.append(bytes(container))


@contextlib.contextmanager
def executor() -> Iterator[tuple[socket.socket, OutputPipe]]:
    """Start an executor and connect to it."""
    with tempfile.TemporaryDirectory() as folder:
        process = Executor(Path(folder))
        process.go_on("started")
        process.wait_for("executor.sock")
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(30)
            connection.connect(f"{folder}/executor.sock")
            yield connection, process.output
        process.close()


def talk(connection: socket.socket, output: OutputPipe) -> tuple[Any, list[bytes]]:
    """Call a generator function of the standard library as a worker does; returns result and values."""
    worker = ExecutorConnection(connection, output, deadline=2e9)
    payload = pickle_call(heapq.merge, ([1, 3], [2]), {}).payload(
        environment={"NAME": "value"},
        packed_modules=pack_modules([ModuleSource("own", "/own.py", is_package=False, wins=True, source="x = 1\n")]),
    )
    reader = _Reader()
    result = worker.call("call", "heapq.merge", payload, max_result_bytes=1 << 20, listener=reader)
    reader.close()
    return result, reader.values


def frames() -> dict[str, Any]:
    """Return what goes between a worker and an executor, hexadecimal."""
    with executor() as (connection, output):
        recorded = _Recorded(connection)
        talk(recorded, output)
        recorded.close()
    return {
        "wire": wire.WIRE_VERSION,
        "from_worker": recorded.sent.hex(),
        "from_executor": recorded.received.hex(),
    }


def main() -> None:
    """Write the golden messages of this release."""
    from importlib.metadata import version

    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder))
        server.start()
        try:
            written = messages(Redis.from_url(server.url))
        finally:
            server.stop()
    GOLDEN.mkdir(exist_ok=True)
    (GOLDEN / f"{version('readie')}.json").write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
