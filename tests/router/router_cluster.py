"""What router tests put around a router: a client that submits, workers that announce themselves and take messages."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry
from redis import Redis

from readie.ledger import Ledger, Placed
from readie.ledger.result import decode_result
from readie.ledger.routing import Addressed, Parking, RoutingLedger
from readie.protocol import keys, task
from readie.protocol.announcement import Announcement, encode_ready
from readie.protocol.call import CallHeader, CallOptions, ImportHints, Placement
from readie.protocol.catalogue import Catalogue, Checkpoint, Cost, Module
from readie.protocol.envelope import CallState, Envelope
from router.metrics import RouterMetrics

ROOT = Path(__file__).parent.parent.parent
PYTHON = "3.11"

T = TypeVar("T")


def eventually(look: Callable[[], T], what: str, seconds: float = 60.0) -> T:
    """Return what ``look`` finds as soon as it finds something."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.003)
    return found


def uncollected() -> RouterMetrics:
    """Return metrics that nobody reads."""
    return RouterMetrics(CollectorRegistry())


def catalogue(*checkpoints: Sequence[str], generation: str = "g1") -> Catalogue:
    """Return a small catalogue: ``checkpoint_0`` is empty, each further one holds the modules given for it."""
    modules = {
        "numpy": Module(import_seconds=0.2, megabytes=20),
        "numpy.linalg": Module(import_seconds=0.01, megabytes=1, dependencies=("numpy",)),
        "pandas": Module(import_seconds=0.5, megabytes=40, dependencies=("numpy",)),
        "torch": Module(import_seconds=4.0, megabytes=300, dependencies=("numpy",)),
    }
    images = [("checkpoint_0", ()), *((f"checkpoint_{number}", held) for number, held in enumerate(checkpoints, 1))]
    return Catalogue(
        generation=generation,
        flavor="default",
        python=PYTHON,
        filesystem_digest="0" * 64,
        cost=Cost(restore_base_seconds=0.1, restore_seconds_per_megabyte=0.001, cold_base_seconds=0.3),
        modules=modules,
        checkpoints=tuple(
            Checkpoint(
                id=name,
                imported=tuple(held),
                holds=tuple(held),
                megabytes=15 + sum(modules[module].megabytes for module in held),
                restore_seconds=0.1,
            )
            for name, held in images
        ),
    )


def header(
    call_id: str,
    *,
    imports: Sequence[str] = (),
    python: str = PYTHON,
    pin: str | None = None,
    cold: bool = False,
    flavor: str = "default",
    priority: int = 0,
    memory: int | None = None,
    expires: float | None = None,
    cpu: float | None = None,
) -> CallHeader:
    """Return a call's header as a client makes it."""
    return CallHeader(
        protocol=1,
        id=call_id,
        name="module.function",
        python=python,
        hints=ImportHints(imports=tuple(imports)),
        options=CallOptions(
            checkpoint_id=pin,
            disable_optimized_execution=cold,
            flavor=flavor,
            priority=priority,
            memory_bytes=memory,
            expires_seconds=expires,
            cpu=cpu,
        ),
        payload_bytes=7,
        payload_by_reference=False,
    )


def message(call: CallHeader, payload: bytes = b"payload") -> str:
    """Return the item that a client puts on the submit queue for a call."""
    return task.encode(call, task.encode_body(payload), "client@test")


class Client:
    """Submits calls and sees what becomes of them."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.ledger = Ledger(redis)

    def submit(self, call: CallHeader) -> str:
        """Submit a call and return its id."""
        self.ledger.submit(call.id, message(call), "client", expires_seconds=call.options.expires_seconds)
        return call.id

    def sent(self, call: CallHeader) -> dict[str, Any]:
        """Return the message for a call, to be changed."""
        content = json.loads(message(call))
        assert isinstance(content, dict)
        return content

    def submit_message(self, call_id: str, content: object) -> str:
        """Submit a call with this as its message; returns the item on the queue."""
        item = json.dumps(content)
        self.ledger.submit(call_id, item, "client")
        return item

    def park(self, call_id: str, capacity: str | None = None) -> None:
        """Let a submitted call wait, with no router there."""
        ledger = RoutingLedger(self.redis)
        seen = ledger.look().capacity if capacity is None else capacity
        ledger.park_all("nobody", seen, 1000, [Parking(call_id, b"", "group", 0, "for something")])

    def end(self, call_id: str) -> Envelope:
        """Wait for a call's end."""
        text = eventually(lambda: self.redis.get(keys.result(call_id)), f"the end of {call_id}")
        assert isinstance(text, bytes)
        return decode_result(text)

    def waits_for(self, call_id: str, reason: str) -> None:
        """Wait until a call says that it waits for this reason."""
        eventually(
            lambda: self.ledger.state(call_id) == (CallState.QUEUED, reason) and self.is_waiting(call_id),
            f"{call_id} waits: {reason}",
        )

    def is_waiting(self, call_id: str) -> bool:
        """Whether a call is among those that wait."""
        return self.redis.zscore(keys.WAITING, call_id) is not None

    def end_of_queue(self) -> None:
        """Wait until routers have settled all there is on the submit queue."""
        eventually(lambda: not self.redis.llen(keys.SUBMIT_QUEUE) and not self.taken(), "the end of the submit queue")

    def taken(self) -> int:
        """Return how many items routers have in hand."""
        return sum(int(self.redis.llen(name)) for name in self.redis.scan_iter(keys.router_taken("*")))

    def field(self, call_id: str, name: str) -> str:
        """Return a field of a call's record."""
        value = self.redis.hget(keys.call(call_id), name)
        return value.decode() if isinstance(value, bytes) else ""

    def dead_letters(self) -> list[dict[str, Any]]:
        """Return the dead letters, newest first."""
        items = self.redis.lrange(keys.DEAD_LETTERS, 0, -1)
        assert isinstance(items, list)
        return [json.loads(item) for item in items]


class Worker:
    """A worker as routers see one: an entry with a lease, and a queue."""

    def __init__(
        self,
        redis: Redis,
        name: str,
        *,
        slots: int = 4,
        python: str = PYTHON,
        flavor: str = "default",
        memory: int | None = None,
        call_memory: int | None = None,
    ) -> None:
        self.redis = redis
        self.ledger = RoutingLedger(redis)
        self.name = name
        self.queue = keys.worker_queue(name)
        self.announcement = Announcement(
            name=name,
            incarnation=f"{name}-1",
            pid=1,
            slots=slots,
            flavor=flavor,
            python=python,
            runsc_version="test",
            generation=None,
            catalogue=None,
            memory_bytes=memory,
            call_memory_bytes=call_memory,
        )

    def serve(self, served: Catalogue, *, publish: bool = True) -> "Worker":
        """Serve a generation."""
        if publish:
            self.ledger.publish_catalogue(served)
        self._change(
            generation=served.generation,
            catalogue=served.digest(),
            checkpoints=tuple(checkpoint.id for checkpoint in served.checkpoints),
        )
        return self

    def announce(self, lease_seconds: int = 1000) -> "Worker":
        """Announce itself."""
        self.ledger.announce(self.announcement, lease_seconds)
        return self

    def restart(self) -> "Worker":
        """Announce itself as a new process."""
        self._change(incarnation=self.announcement.incarnation + "1")
        return self.announce()

    def give(self, call: CallHeader) -> CallHeader:
        """Submit a call and place it here, with no router there."""
        self.ledger.submit(call.id, message(call), "client")
        self.redis.delete(keys.SUBMIT_QUEUE)
        return self.place(call)

    def place(self, call: CallHeader, attempt: int = 1) -> CallHeader:
        """Place a queued call here, with no router there."""
        incarnation = self.announcement.incarnation
        placement = Placement(
            worker=self.name, incarnation=incarnation, attempt=attempt, checkpoint_id=None, reason="by hand"
        )
        placed = call.model_copy(update={"placement": placement})
        (outcome,) = self.ledger.place_all("nobody", [Addressed(placed, message(placed), b"")])
        assert isinstance(outcome, Placed)
        return placed

    def make_ready(self, **sandboxes: int) -> "Worker":
        """Say that restored sandboxes wait for calls."""
        self.redis.hset(keys.worker(self.name), "ready", encode_ready(sandboxes))
        return self

    def drain(self) -> "Worker":
        """Take nothing new."""
        self._change(draining=True)
        return self.announce()

    def vanish(self) -> None:
        """End without a word, its lease run out."""
        self.redis.delete(keys.worker(self.name))

    def _change(self, **fields: Any) -> None:
        self.announcement = self.announcement.model_copy(update=fields)

    def queued(self) -> int:
        """Return how many messages are on its queue."""
        return int(self.redis.llen(self.queue))

    def receive(self) -> dict[str, Any]:
        """Wait for a message and take it."""
        item = eventually(lambda: self.redis.rpop(self.queue), f"a message for {self.name}")
        assert isinstance(item, bytes)
        content = json.loads(item)
        assert isinstance(content, dict)
        return content

    def receive_header(self) -> tuple[CallHeader, Placement]:
        """Wait for a message and return its header and placement."""
        call = CallHeader.model_validate(self.receive()["headers"][task.HEADER])
        assert call.placement is not None
        return call, call.placement

    def begin(self) -> CallHeader:
        """Wait for a message and begin its call."""
        call, _ = self.receive_header()
        assert self.ledger.claim(call) is not None, f"{call.id} could not be begun"
        return call

    def finish(self, call: CallHeader) -> bool:
        """End a call; returns whether it was still to be ended."""
        assert call.placement is not None
        envelope = Envelope(id=call.id, state=CallState.DONE)
        return self.ledger.finish(envelope, attempt=call.placement.attempt, keep_seconds=600) is not None


class RouterProcess:
    """``python -m router``."""

    def __init__(self, redis_url: str, log: Path, **environment: str) -> None:
        self._log = log
        with log.open("ab") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "router"],
                cwd=ROOT,
                env={**os.environ, "READIE_REDIS_URL": redis_url, **environment},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
            )

    @property
    def log(self) -> str:
        """What it has logged."""
        return self._log.read_text()

    def wait_for_log(self, text: str, times: int = 1) -> None:
        """Wait until it has logged something."""
        eventually(lambda: self.log.count(text) >= times, f"{text!r} in the log: {self.log[-2000:]}")

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ask it to end and return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=20)
