"""How a worker treats a call whose reader is slow, or gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from redis import Redis

from readie.ledger.holding import HoldingLedger
from readie.ledger.streams import WINDOW_VALUES, Position, StreamLedger
from readie.protocol import keys
from readie.protocol.call import CallHeader, Placement
from readie.protocol.signing import Keyring
from workers.control import RunningCall, RunningCalls
from workers.output import CallOutput, MovedOnError

HEADER = CallHeader(
    protocol=1,
    id="a",
    name="f",
    python="3.11",
    payload_bytes=1,
    payload_by_reference=False,
    streams=True,
    placement=Placement(worker="worker1@test", incarnation="i", attempt=1, checkpoint_id=None, reason="test"),
)


@pytest.fixture
def ledger(redis: Redis) -> StreamLedger:
    """A ledger with the call, running."""
    record = {"state": "running", "attempt": 1, "incarnation": "i", "reply": "client", "submitted_at": 1}
    redis.hset(keys.call("a"), mapping=record)
    return StreamLedger(redis)


@pytest.fixture
def call() -> Iterator[RunningCall]:
    with RunningCalls().enter("a", 1) as call:
        yield call


def upholds(ledger: StreamLedger) -> Callable[[], bool]:
    """Return what says in Redis that the attempt runs here."""
    return lambda: HoldingLedger(ledger.redis).uphold("a", 1, "worker1@test", "i")


def stall(output: CallOutput) -> None:
    for _ in range(WINDOW_VALUES):
        output.yielded(b"value")


def test_a_call_that_waits_for_a_reader_that_is_gone_is_stopped(ledger: StreamLedger, call: RunningCall) -> None:
    output = CallOutput(ledger, HEADER, call, upholds(ledger), Keyring(), keep_bytes=1000, reader_seconds=0)
    for _ in range(2):
        output.look()
    assert not output.stopped, "it can go on without a reader"
    stall(output)
    for _ in range(2):
        output.look()
    assert output.stopped
    output.close()


def test_a_slow_reader_is_waited_for(ledger: StreamLedger, call: RunningCall) -> None:
    output = CallOutput(ledger, HEADER, call, upholds(ledger), Keyring(), keep_bytes=1000, reader_seconds=0)
    pubsub = ledger.redis.pubsub()
    pubsub.subscribe(keys.replies("client"))
    assert pubsub.get_message(timeout=5) is not None
    stall(output)
    for _ in range(3):
        output.look()
    assert not output.stopped

    taken = ledger.take_values("a", "client")
    ledger.take_values("a", "client", taken.position, Position("1", 5, 25))
    output.look()
    assert output.credit is not None
    assert output.credit.values == WINDOW_VALUES + 5
    output.close()


def test_an_attempt_that_is_over_publishes_nothing(ledger: StreamLedger, call: RunningCall) -> None:
    output = CallOutput(ledger, HEADER, call, upholds(ledger), Keyring(), keep_bytes=1000)
    output.printed(b"mine\n")
    ledger.redis.hset(keys.call("a"), "attempt", 2)
    for publish in (lambda: output.printed(b"stale\n"), lambda: output.yielded(b"stale"), output.look):
        with pytest.raises(MovedOnError):
            publish()
    assert ledger.read_output("a", 0, None).pieces == [(0, b"mine\n")]
    output.close()


def test_an_attempt_that_redis_has_forgotten_goes_on(ledger: StreamLedger, call: RunningCall) -> None:
    output = CallOutput(ledger, HEADER, call, upholds(ledger), Keyring(), keep_bytes=1000)
    ledger.redis.hset(keys.call("a"), "state", "placed")
    output.printed(b"mine\n")
    ledger.redis.hset(keys.call("a"), mapping={"state": "queued", "attempt": 0})
    ledger.redis.hdel(keys.call("a"), "incarnation")
    output.yielded(b"value")
    assert ledger.read_output("a", 0, None).pieces == [(0, b"mine\n")]
    assert [bytes(value) for value in ledger.take_values("a", "client").values] == [b"value"]
    assert ledger.redis.hget(keys.call("a"), "state") == b"running"
    output.close()
