"""Fills a Redis as clients, routers and workers do, through the ledger."""

import itertools
import subprocess
from collections.abc import Callable
from typing import Literal

from redis import Redis

from readie.ledger.routing import Addressed, Parking, Placed
from readie.ledger.sessions import SessionLedger
from readie.protocol import keys, task
from readie.protocol.announcement import Announcement, WorkerCounts
from readie.protocol.call import CallHeader, CallOptions, ImportHints, Placement, SessionUse
from readie.protocol.catalogue import Catalogue, Checkpoint, Cost, Module
from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import CallState, Envelope, Failure, Report

Run = Callable[..., "subprocess.CompletedProcess[str]"]
"""Runs a command."""
LONG = "a-machine-in-a-cloud-with-a-name-that-nobody-would-ever-type.internal.example.com"
WORKER = f"worker1@{LONG}"
CATALOGUE = Catalogue(
    generation="20261129T210835-1f0c3a9b5d7e",
    flavor="default",
    python="3.11",
    filesystem_digest="f" * 64,
    cost=Cost(restore_base_seconds=0.08, restore_seconds_per_megabyte=0.001, cold_base_seconds=0.3),
    modules={"numpy": Module(import_seconds=0.1, megabytes=20), "pandas": Module(import_seconds=0.4, megabytes=30)},
    checkpoints=(
        Checkpoint(id="checkpoint_0", imported=(), holds=(), megabytes=15, restore_seconds=0.09),
        Checkpoint(
            id="checkpoint_1",
            imported=tuple(f"a_package_{number}.with_a_long_module_name" for number in range(12)),
            holds=("numpy", "pandas"),
            megabytes=120,
            restore_seconds=0.25,
        ),
    ),
)
COUNTS = WorkerCounts(
    sandboxes={"busy": 1, "idle": 2, "ready": 3, "created": 4},
    ready_bytes=1_000_000,
    ready_bytes_limit=2_000_000,
    starts={"warm": 5, "restored": 6, "cold": 7},
    ended={CallState.DONE: 17, CallState.FAILED: 1},
    calls_per_second=2.5,
)


class Cluster:
    """Does to the ledger what a cluster does."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.ledger = SessionLedger(redis)
        self._numbers = itertools.count(1)

    def announce(
        self, name: str = WORKER, counts: WorkerCounts | None = COUNTS, catalogue: Catalogue | None = CATALOGUE
    ) -> Announcement:
        worker = Announcement(
            name=name,
            incarnation="1",
            pid=4_194_303,
            slots=64,
            flavor="default",
            python="3.11",
            runsc_version="20260224.1",
            generation=catalogue.generation if catalogue else None,
            catalogue=catalogue.digest() if catalogue else None,
            checkpoints=tuple(one.id for one in catalogue.checkpoints) if catalogue else (),
            memory_bytes=1000,
            call_memory_bytes=100,
        )
        if catalogue:
            self.ledger.publish_catalogue(catalogue)
        self.ledger.announce(worker, 600, {"checkpoint_0": 2, None: 1}, counts)
        self.ledger.renew_router("router-1", 600)
        return worker

    def submit(self, name: str = "mean", client: str = "", session: str | None = None) -> CallHeader:
        """Submit a call; ids are as long as those of clients, and ascend."""
        header = CallHeader(
            protocol=1,
            id=f"{next(self._numbers):032x}",
            name=name,
            python="3.11",
            hints=ImportHints(imports=("pandas",)),
            options=CallOptions(timeout_seconds=60),
            session=SessionUse(id=session, idle_ttl_seconds=300) if session else None,
            client=client,
            payload_bytes=1,
            payload_by_reference=False,
        )
        item = task.encode(header, task.encode_body(b"x"), "test")
        self.ledger.submit(header.id, item, "nobody", name=name, client=client)
        return header

    def place(self, header: CallHeader, worker: str = WORKER) -> CallHeader:
        placement = Placement(
            worker=worker,
            incarnation="1",
            attempt=1,
            checkpoint_id="checkpoint_1",
            reason="lowest predicted start: checkpoint_1 0.200 s, cold 0.800 s",
            predicted_seconds=0.2,
        )
        placed = header.model_copy(update={"placement": placement})
        (outcome,) = self.ledger.place_all("router-1", [Addressed(placed, "message", b"")])
        assert isinstance(outcome, Placed)
        return placed

    def begin(self, header: CallHeader) -> CallHeader:
        placed = self.place(header)
        assert self.ledger.claim(placed) is not None
        return placed

    def end(self, header: CallHeader, state: Literal[CallState.DONE, CallState.FAILED] = CallState.DONE) -> CallHeader:
        begun = self.begin(header)
        failure = None
        if state is CallState.FAILED:
            failure = Failure(
                code=ErrorCode.REMOTE,
                type="builtins.ValueError",
                message="no such column: " + "x" * 100,
                traceback="Traceback (most recent call last):\n" + "  a line of it\n" * 3,
            )
        report = Report(
            worker=WORKER,
            start="restored",
            checkpoint_id="checkpoint_1",
            attempt=1,
            reason="lowest predicted start",
            predicted_seconds=0.2,
            output_bytes=10,
            phases={"queue": 0.001, "start": 0.1, "load": 0.05, "execute": 1.5},
        )
        envelope = Envelope(id=header.id, state=state, failure=failure, report=report, value_bytes=9, submitted_at=1.0)
        assert self.ledger.finish(envelope, attempt=1, keep_seconds=600) is not None
        return begun

    def park(self, header: CallHeader, why: str) -> None:
        self.redis.lrem(keys.SUBMIT_QUEUE, 1, self.redis.hget(keys.message(header.id), "submitted"))  # type: ignore[arg-type]
        self.ledger.park_all("router-1", "0", 100, [Parking(header.id, b"", "group", 0, why)])

    def open_session(self, session_id: str) -> None:
        self.redis.hset(
            keys.session(session_id),
            mapping={
                "state": "idle",
                "worker": WORKER,
                "sandbox": "s1",
                "checkpoint_id": "checkpoint_1",
                "idle_ttl_seconds": 300,
                "opened_at": 1,
                "last_used_at": self.ledger.now() - 100,
                "incarnation": "1",
            },
        )
        self.redis.zadd(keys.SESSIONS, {session_id: 1})
