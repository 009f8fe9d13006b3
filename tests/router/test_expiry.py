"""Calls that no worker begins within their ``expires`` end as expired, wherever they are by then."""

from collections.abc import Callable

import pytest
from redis import Redis
from router_cluster import Client, RouterProcess, Worker, eventually, header, uncollected

from readie.ledger.routing import RoutingLedger
from readie.protocol import keys
from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import CallState
from router.ending import Ending
from router.expiry import Expiry

NewWorker = Callable[..., Worker]


def expired(client: Client, call_id: str) -> str:
    """Wait for the end of a call that expires; returns the message."""
    end = client.end(call_id)
    assert end.state is CallState.EXPIRED
    assert end.failure is not None
    assert end.failure.code is ErrorCode.EXPIRED
    assert client.redis.zcard(keys.EXPIRIES) == 0
    assert client.redis.zscore(keys.PENDING, call_id) is None
    return end.failure.message


def let_expire(redis: Redis, *call_ids: str) -> None:
    """Make it the past by when these calls had to begin."""
    for call_id in call_ids:
        redis.hset(keys.call(call_id), "expires_at", "1")
        redis.zadd(keys.EXPIRIES, {call_id: 1.0}, xx=True)


@pytest.mark.usefixtures("router")
def test_a_waiting_call_expires_and_says_what_it_waited_for(client: Client) -> None:
    client.submit(header("c", expires=1000))
    client.waits_for("c", "no worker is running")
    let_expire(client.redis, "c")
    assert "no worker is running" in expired(client, "c")
    assert not client.is_waiting("c")
    assert client.redis.exists(keys.WAITING_GROUPS) == 0


@pytest.mark.usefixtures("router")
def test_a_call_that_was_placed_but_not_begun_expires_and_frees_its_slot(client: Client, new_worker: NewWorker) -> None:
    worker = new_worker(slots=1).announce()
    client.submit(header("c", expires=1000))
    call, _ = worker.receive_header()
    let_expire(client.redis, "c")
    expired(client, "c")
    assert worker.ledger.claim(call) is None
    client.submit(header("after"))
    assert worker.begin().id == "after"


@pytest.mark.usefixtures("router")
def test_a_call_that_was_begun_in_time_does_not_expire(client: Client, new_worker: NewWorker) -> None:
    worker = new_worker().announce()
    client.submit(header("begun", expires=1000))
    call = worker.begin()
    client.submit(header("younger", expires=1000))
    worker.receive()
    let_expire(client.redis, "begun", "younger")
    expired(client, "younger")
    assert client.ledger.state("begun")[0] is CallState.RUNNING
    assert worker.finish(call)


@pytest.mark.usefixtures("router")
def test_a_call_without_expires_outlives_those_with(client: Client, new_worker: NewWorker) -> None:
    client.submit(header("stays"))
    client.submit(header("later", expires=1000))
    client.submit(header("goes", expires=0.1))
    assert client.end("goes").state is CallState.EXPIRED
    worker = new_worker(slots=2).announce()
    assert {worker.begin().id for _ in range(2)} == {"stays", "later"}
    assert client.redis.zcard(keys.EXPIRIES) == 0


def test_a_call_whose_message_no_router_has_taken_expires(client: Client, new_worker: NewWorker, redis: Redis) -> None:
    worker = new_worker().announce()
    client.submit(header("c", expires=0.001))
    sweep(redis)
    assert client.end("c").state is CallState.EXPIRED
    (item,) = redis.lrange(keys.SUBMIT_QUEUE, 0, -1)
    assert item
    assert worker.ledger.requeue("c", worker.name, worker.announcement.incarnation) == "expired"


def sweep(redis: Redis) -> None:
    """End what expires soonest, with no router there."""
    ledger = RoutingLedger(redis)
    expiry = Expiry(ledger, Ending(ledger, keep_seconds=60), uncollected())
    eventually(lambda: ledger.expiring(1)[0][1] <= 0, "a call expires")
    expiry.sweep()


def test_a_call_can_not_begin_after_its_expiry_even_if_no_router_is_there(
    client: Client, new_worker: NewWorker, redis: Redis
) -> None:
    worker = new_worker().announce()
    call = header("c", expires=0.001)
    client.submit(call)
    placed = worker.place(call)
    eventually(lambda: RoutingLedger(redis).expiring(1)[0][1] <= 0, "the call expires")
    assert worker.ledger.claim(placed) is None
    sweep(redis)
    assert client.end("c").state is CallState.EXPIRED
    assert worker.ledger.held_calls(worker.name) == []


def test_a_call_that_begins_while_it_is_being_expired_goes_on(
    client: Client, new_worker: NewWorker, redis: Redis
) -> None:
    worker = new_worker().announce()
    call = header("c", expires=1000)
    client.submit(call)
    placed = worker.place(call)

    class BeginsMeanwhile(RoutingLedger):
        """The worker begins the call just after its record was read."""

        def now(self) -> float:
            # Later than it is for the worker, which could not begin the call otherwise.
            return super().now() + 2000

        def state(self, call_id: str) -> tuple[CallState | None, str]:
            assert worker.ledger.claim(placed) is not None
            return super().state(call_id)

    ledger = BeginsMeanwhile(redis)
    Expiry(ledger, Ending(ledger, keep_seconds=60), uncollected()).sweep()
    assert client.field("c", "state") == "running"
    assert worker.finish(placed)


def test_only_a_calls_own_record_says_when_it_expires(client: Client, redis: Redis) -> None:
    """Whoever may submit calls can write to the list of those that expire."""
    for call in (header("later", expires=1000), header("never")):
        client.submit(call)
        redis.zadd(keys.EXPIRIES, {call.id: 1.0})
    ledger = RoutingLedger(redis)
    Expiry(ledger, Ending(ledger, keep_seconds=60), uncollected()).sweep()
    assert client.field("later", "state") == client.field("never", "state") == "queued"
    assert redis.zscore(keys.EXPIRIES, "later") == float(client.field("later", "expires_at"))
    assert redis.zscore(keys.EXPIRIES, "never") is None


def test_more_expired_calls_than_one_look_takes_all_end(client: Client, redis: Redis) -> None:
    for number in range(600):
        client.submit(header(f"c{number}", expires=0.001))
    ledger = RoutingLedger(redis)
    expiry = Expiry(ledger, Ending(ledger, keep_seconds=60), uncollected())
    while expiry.sweep() == 0:
        pass
    assert all(client.end(f"c{number}").state is CallState.EXPIRED for number in range(600))
    assert redis.zcard(keys.EXPIRIES) == 0


def test_the_expiry_of_a_call_whose_record_is_gone_or_spoiled_is_forgotten(redis: Redis) -> None:
    redis.set(keys.call("spoiled"), "not a record")
    redis.zadd(keys.EXPIRIES, {"gone": 1.0, "spoiled": 1.0})
    ledger = RoutingLedger(redis)
    Expiry(ledger, Ending(ledger, keep_seconds=60), uncollected()).sweep()
    assert redis.zcard(keys.EXPIRIES) == 0


def test_calls_expire_though_the_router_that_let_them_wait_was_killed(
    client: Client, start_router: Callable[..., RouterProcess]
) -> None:
    killed = start_router()
    for number in range(20):
        client.submit(header(f"c{number}", expires=1000))
    client.waits_for("c19", "no worker is running")
    killed.kill()
    let_expire(client.redis, *(f"c{number}" for number in range(20)))
    start_router()
    start_router()
    assert all(client.end(f"c{number}").state is CallState.EXPIRED for number in range(20))
    assert client.redis.exists(keys.WAITING, keys.WAITING_GROUPS, keys.EXPIRIES, keys.PENDING) == 0
