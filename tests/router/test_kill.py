"""Routers that are killed, stopped or cut off from Redis lose nothing and double nothing."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError
from router_cluster import Client, RouterProcess, Worker, eventually, header

from readie.protocol import keys
from readie.protocol.call import CallHeader
from readie.protocol.envelope import CallState
from tests.conftest import RedisServer

NewWorker = Callable[..., Worker]
StartRouter = Callable[..., RouterProcess]
GIB = 1 << 30


class BusyWorkers:
    """Workers that begin and end every call they get, in a thread, and count what they began."""

    def __init__(self, url: str, count: int, slots: int) -> None:
        redis = Redis.from_url(url)
        self.workers = [Worker(redis, f"worker{number}@test", slots=slots).announce() for number in range(count)]
        self.begun: Counter[str] = Counter()
        self.refused = 0
        """Messages of attempts that were not theirs to begin, and ends that came too late."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        while not self._stop.is_set():
            for worker in self.workers:
                while worker.queued():
                    call, _ = worker.receive_header()
                    if worker.ledger.claim(call) is None:
                        self.refused += 1
                        continue
                    self.begun[call.id] += 1
                    if not worker.finish(call):
                        self.refused += 1

    def wait_for(self, count: int) -> None:
        """Wait until this many calls were begun."""
        eventually(lambda: len(self.begun) >= count, f"{count} calls, {len(self.begun)} were begun before")

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join(timeout=20)


@pytest.fixture
def busy_workers(redis_url: str) -> Iterator[BusyWorkers]:
    """Three workers with four slots each."""
    workers = BusyWorkers(redis_url, count=3, slots=4)
    yield workers
    workers.stop()


def test_killing_routers_at_any_moment_loses_and_doubles_no_call(
    client: Client, busy_workers: BusyWorkers, start_router: StartRouter
) -> None:
    calls = [f"c{number}" for number in range(3000)]
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    steady = start_router(READIE_ROUTER_LEASE_SECONDS="2")
    submitting = threading.Thread(target=lambda: [client.submit(header(call_id)) for call_id in calls])
    submitting.start()
    kills = 0
    while len(busy_workers.begun) < len(calls):
        victim = start_router(READIE_ROUTER_LEASE_SECONDS="2")
        victim.wait_for_log("consuming")
        # Some calls later, in the middle of whatever it does then.
        busy_workers.wait_for(min(len(busy_workers.begun) + chance.randrange(200), len(calls)))
        if kills < 12:
            victim.kill()
            kills += 1
        if kills == 6:
            steady.kill()
    submitting.join()
    # Each may have been killed: one has to tidy up what the last left.
    start_router(READIE_ROUTER_LEASE_SECONDS="2")
    client.end_of_queue()
    assert kills > 0
    assert busy_workers.begun == Counter(calls), f"seed {seed}"
    assert busy_workers.refused == 0
    assert client.redis.zcard(keys.PENDING) == 0
    assert all(client.field(call_id, "state") == "done" for call_id in calls)


class FullWorkers:
    """Workers with few slots and little memory, which end the calls they have begun at their next look."""

    def __init__(self, url: str) -> None:
        redis = Redis.from_url(url)
        self.workers = [
            Worker(redis, f"worker{number}@test", slots=2, memory=4 * GIB, call_memory=GIB).announce()
            for number in range(3)
        ]
        self.begun: Counter[str] = Counter()
        self._running: list[tuple[Worker, CallHeader]] = []

    def work(self) -> None:
        """Take one look."""
        for worker, call in self._running:
            assert worker.finish(call)
        self._running = []
        for worker in self.workers:
            while worker.queued():
                call, _ = worker.receive_header()
                # One that has expired meanwhile can't be begun.
                if worker.ledger.claim(call) is not None:
                    self.begun[call.id] += 1
                    self._running.append((worker, call))


def test_killing_routers_while_calls_of_every_kind_wait_ends_each_of_them_once(
    client: Client, redis_url: str, redis: Redis, start_router: StartRouter
) -> None:
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    calls = [
        header(
            f"c{number}",
            priority=chance.randrange(10),
            memory=chance.choice([None, GIB, 2 * GIB, 4 * GIB]),
            expires=chance.choice([None, 1000, 0.3]),
        )
        for number in range(900)
    ]
    workers = FullWorkers(redis_url)
    for call in calls[:450]:
        client.submit(call)
    later = calls[450:]
    router = start_router(READIE_ROUTER_LEASE_SECONDS="2")
    kills = 0
    deadline = time.monotonic() + 120
    while redis.zcard(keys.PENDING) or later:
        assert time.monotonic() < deadline, f"calls are left (seed {seed}): {redis.zcard(keys.PENDING)}"
        workers.work()
        if later and (kills >= 4 or chance.random() < 0.2):
            client.submit(later.pop())
        if kills < 8 and "consuming" in router.log and chance.random() < 0.1:
            other = start_router(READIE_ROUTER_LEASE_SECONDS="2")
            router.kill()
            router, kills = other, kills + 1
    workers.work()
    assert kills >= 4
    states = Counter(client.field(call.id, "state") for call in calls)
    assert set(states) == {"done", "expired"}, f"seed {seed}"
    assert workers.begun == Counter(call.id for call in calls if client.field(call.id, "state") == "done")
    assert all(client.field(call.id, "state") == "done" for call in calls if call.options.expires_seconds != 0.3)
    client.end_of_queue()
    left = {key.decode() for key in redis.scan_iter("readie:w*")} | {
        key.decode() for key in redis.scan_iter("readie:e*")
    }
    assert left == {keys.WORKERS, *(keys.worker(worker.name) for worker in workers.workers)}


def test_what_a_killed_router_had_in_hand_is_routed_by_another(
    client: Client, busy_workers: BusyWorkers, redis: Redis, start_router: StartRouter
) -> None:
    lease = {"READIE_ROUTER_LEASE_SECONDS": "2"}
    killed = start_router(**lease)
    killed.wait_for_log("consuming")
    (router,) = redis.zrange(keys.ROUTERS, 0, -1)
    killed.kill()
    # As if it had been killed right after taking them.
    for call_id in ("one", "two"):
        client.submit(header(call_id))
        redis.lmove(keys.SUBMIT_QUEUE, keys.router_taken(router.decode()), "RIGHT", "LEFT")
    start_router(**lease)
    assert client.end("one").state is CallState.DONE
    assert client.end("two").state is CallState.DONE
    eventually(lambda: router not in redis.zrange(keys.ROUTERS, 0, -1), "the dead router is forgotten")
    assert client.taken() == 0


@pytest.mark.parametrize("number", [15, 2], ids=["SIGTERM", "SIGINT"])
def test_a_stopped_router_leaves_nothing_behind(
    client: Client, busy_workers: BusyWorkers, redis: Redis, start_router: StartRouter, number: int
) -> None:
    router = start_router()
    for count in range(200):
        client.submit(header(f"c{count}"))
    eventually(lambda: busy_workers.begun, "the first call")
    router.process.send_signal(number)
    assert router.process.wait(timeout=20) == 0
    assert redis.zcard(keys.ROUTERS) == 0
    assert client.taken() == 0
    start_router()
    eventually(lambda: len(busy_workers.begun) == 200, "the other calls")


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis with an append-only file that the test may kill."""
    server = RedisServer(tmp_path, "--appendonly", "yes", "--appendfsync", "always")
    server.start()
    yield server
    server.stop()


def test_a_router_outlives_redis_and_loses_nothing(
    own_redis: RedisServer, start_router: StartRouter, tmp_path: Path
) -> None:
    client = Client(Redis.from_url(own_redis.url))
    router = RouterProcess(own_redis.url, tmp_path / "router.log")
    try:
        worker = Worker(client.redis, "worker1@test", slots=4).announce()
        ended = set()
        for down in range(3):
            for number in range(40):
                client.submit(header(f"c{down}-{number}"))
            while len(ended) < 40 * down + 20:
                call = worker.begin()
                assert worker.finish(call)
                ended.add(call.id)
            own_redis.stop()
            router.wait_for_log("redis trouble", times=down + 1)
            own_redis.start()
        while len(ended) < 120:
            call = worker.begin()
            assert worker.finish(call)
            ended.add(call.id)
        client.end_of_queue()
        assert client.redis.zcard(keys.PENDING) == 0
        assert router.process.poll() is None
    finally:
        router.kill()


def test_a_router_waits_for_redis_at_its_start(own_redis: RedisServer, tmp_path: Path) -> None:
    own_redis.stop()
    router = RouterProcess(own_redis.url, tmp_path / "router.log")
    try:
        router.wait_for_log("redis trouble")
        own_redis.start()
        client = Client(Redis.from_url(own_redis.url))
        client.submit(header("c"))
        assert Worker(client.redis, "worker1@test").announce().begin().id == "c"
        assert router.stop() == 0
    finally:
        router.kill()


def test_a_router_that_can_not_reach_redis_still_stops(own_redis: RedisServer, tmp_path: Path) -> None:
    own_redis.stop()
    router = RouterProcess(own_redis.url, tmp_path / "router.log")
    try:
        router.wait_for_log("redis trouble")
        assert router.stop() == 0
    finally:
        router.kill()


def test_the_log_shows_neither_arguments_nor_passwords(
    client: Client, redis: Redis, redis_url: str, new_worker: NewWorker, tmp_path: Path
) -> None:
    redis.execute_command("ACL", "SETUSER", "router", "on", ">s3cret", "~*", "&*", "+@all")
    router = RouterProcess(redis_url.replace("://", "://router:s3cret@"), tmp_path / "router.log")
    try:
        worker = new_worker().announce()
        client.submit(header("c"))
        worker.begin()
        redis.lpush(keys.SUBMIT_QUEUE, '{"headers": {"task": "readie.execute"}, "body": "cGF5bG9hZA=="}')
        eventually(client.dead_letters, "the dead letter")
        router.wait_for_log("dead letter")
        assert router.stop() == 0
        assert "call=c " in router.log
        assert "cGF5bG9hZA" not in router.log
        assert "s3cret" not in router.log
    finally:
        router.kill()
        redis.execute_command("ACL", "DELUSER", "router")


def test_a_wrong_setting_is_named_and_nothing_starts(redis_url: str, tmp_path: Path) -> None:
    router = RouterProcess(redis_url, tmp_path / "router.log", READIE_ROUTER_LEASE_SECONDS="soon")
    assert router.process.wait(timeout=30) == 2
    assert "router_lease_seconds" in router.log.lower()


def test_a_router_without_permission_for_redis_says_so(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    router = RouterProcess(redis_url.replace("://", "://nobody:wrong@"), tmp_path / "router.log")
    try:
        router.wait_for_log("redis trouble")
        assert router.stop() == 0
        with pytest.raises(RedisError):
            Redis.from_url(redis_url.replace("://", "://nobody:wrong@")).ping()
    finally:
        router.kill()
