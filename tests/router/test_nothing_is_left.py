"""After tens of thousands of calls of every kind, Redis is as it was."""

import random
import threading
from collections.abc import Iterator

import pytest
from redis import Redis
from router_cluster import Client, Worker, eventually, header

from readie.protocol import keys
from readie.protocol.call import CallHeader
from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import CallState, Envelope, Failure

CALLS = 20_000
UNDER_WAY = 500
KEEP_SECONDS = 600
MORE_MEMORY = 1.1


class MixedWorker:
    """Ends calls in every way, in a thread; many ends are large, and many messages mean nothing by then."""

    def __init__(self, url: str) -> None:
        self.worker = Worker(Redis.from_url(url), "worker1@test", slots=20, memory=1 << 40, call_memory=1 << 30)
        self.worker.announce()
        self._chance = random.Random(1)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join(timeout=20)

    def _work(self) -> None:
        while not self._stop.is_set():
            if not self.worker.queued():
                self._stop.wait(0.001)
                continue
            call, placement = self.worker.receive_header()
            if self._chance.random() < 0.02:
                self.worker.ledger.requeue(call.id, self.worker.name, placement.incarnation)
            elif self.worker.ledger.claim(call) is not None:
                self._end(call, placement.attempt)

    def _end(self, call: CallHeader, attempt: int) -> None:
        chance = self._chance.random()
        if chance < 0.1:
            self.worker.ledger.store_value(call.id, attempt, bytes(20_000), KEEP_SECONDS)
            envelope = Envelope(id=call.id, state=CallState.DONE, value_bytes=20_000, value_by_reference=True)
        elif chance < 0.3:
            failure = Failure(code=ErrorCode.REMOTE, type="builtins.ValueError", message="on purpose")
            envelope = Envelope(id=call.id, state=CallState.FAILED, failure=failure)
        else:
            envelope = Envelope(id=call.id, state=CallState.DONE)
        self.worker.ledger.finish(envelope, attempt=attempt, keep_seconds=KEEP_SECONDS)


@pytest.fixture
def worker(redis_url: str, router: None) -> Iterator[MixedWorker]:
    """A worker and a router at work."""
    worker = MixedWorker(redis_url)
    yield worker
    worker.stop()


def mixed(client: Client, chance: random.Random, number: int) -> str:
    """Submit a call of some kind; returns its id."""
    options: dict[str, object] = {
        "priority": chance.randrange(10),
        "imports": chance.choice([(), ("numpy",), ("pandas", "numpy")]),
        "memory": chance.choice([None, 1 << 30, 1 << 31]),
        "expires": chance.choice([None, None, None, 0.01, 1000]),
        "flavor": "nowhere" if chance.random() < 0.05 else "default",
    }
    call = header(f"c{number}", **options).model_copy(update={"client": f"client{chance.randrange(5)}"})  # type: ignore[arg-type]
    client.submit(call)
    if chance.random() < 0.1:
        client.ledger.cancel(call.id)
    return call.id


def test_redis_is_as_it_was_after_twenty_thousand_mixed_calls_and_their_expiry(
    client: Client, redis: Redis, worker: MixedWorker
) -> None:
    chance = random.Random(2)

    def run(numbers: range) -> None:
        for number in numbers:
            mixed(client, chance, number)
            if number % 50 == 0:
                eventually(lambda: redis.zcard(keys.PENDING) < UNDER_WAY, "calls end")
        eventually(lambda: redis.zcard(keys.PENDING) == 0, "all calls end")
        client.end_of_queue()

    def look() -> tuple[set[bytes], int]:
        """Let everything expire that is to expire; return what is left and its bytes."""
        for key in redis.scan_iter(count=1000):
            # The worker's own entry is renewed for as long as it lives.
            if redis.ttl(key) > 0 and key != keys.worker(worker.worker.name).encode():
                assert redis.ttl(key) <= 60 * 24 * 3600, key
                redis.pexpire(key, 1)
        eventually(lambda: all(redis.ttl(key) != 0 for key in redis.scan_iter(count=1000)), "all of it has expired")
        redis.memory_purge()
        # What the router counts of the traffic comes again with its next writing; it is bounded, and expires. The
        # number of ends that came too late is one number, which the first call cancelled under way begins.
        counted = {keys.traffic("default").encode(), keys.traffic_day("default").encode(), keys.STALE.encode()}
        return set(redis.scan_iter(count=1000)) - counted, int(redis.info("memory")["used_memory_dataset"])

    run(range(500))
    before, bytes_before = look()
    run(range(500, 500 + CALLS))
    after, bytes_after = look()
    assert after == before
    assert bytes_after <= bytes_before * MORE_MEMORY
