"""What a call's output and values are in Redis: fenced by the attempt, bounded, told to whoever waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from readie.ledger import Cancelled
from readie.ledger.routing import Addressed, RoutingLedger
from readie.ledger.streams import (
    WINDOW_VALUES,
    Position,
    ReadElsewhereError,
    StreamLedger,
    StreamRestartedError,
    ValuesLostError,
)
from readie.protocol import keys
from readie.protocol.announcement import Announcement
from readie.protocol.call import CallHeader, Placement
from readie.protocol.envelope import CallState, Envelope, Report

WORKER = "worker1@test"
KEEP = 1 << 20


def header(attempt: int = 1) -> CallHeader:
    return CallHeader(
        protocol=1,
        id="a",
        name="f",
        python="3.11",
        payload_bytes=1,
        payload_by_reference=False,
        placement=Placement(worker=WORKER, incarnation="first", attempt=attempt, checkpoint_id=None, reason="test"),
    )


@pytest.fixture
def ledger(redis: Redis) -> StreamLedger:
    """A ledger with one call, ``a``, whose first attempt runs."""
    routing = RoutingLedger(redis)
    announcement = Announcement(
        name=WORKER,
        incarnation="first",
        pid=1,
        slots=1,
        flavor="default",
        python="3.11",
        runsc_version="1",
        generation=None,
        catalogue=None,
    )
    routing.announce(announcement, lease_seconds=10)
    routing.submit("a", "message", "client")
    routing.place_all("router", [Addressed(header(), "readdressed", b"")])
    assert routing.claim(header()) is not None
    return StreamLedger(redis)


def begin_again(ledger: StreamLedger) -> None:
    """Make the second attempt the one that runs."""
    ledger.redis.hset(keys.call("a"), "attempt", 2)


def end(ledger: StreamLedger, attempt: int = 1) -> None:
    envelope = Envelope(id="a", state=CallState.DONE, report=Report(worker=WORKER, attempt=attempt))
    assert ledger.finish(envelope, attempt=attempt, keep_seconds=100)


def heard(pubsub: Any) -> Iterator[bytes]:
    while (message := pubsub.get_message(timeout=0.2)) is not None:
        if message["type"] == "message":
            yield message["data"]


def output(ledger: StreamLedger, offset: int = 0) -> bytes:
    return b"".join(data for _, data in ledger.read_output("a", offset, None).pieces)


def test_output_is_read_from_any_offset(ledger: StreamLedger) -> None:
    assert ledger.publish_output("a", 1, 0, b"one\n", KEEP)
    assert ledger.publish_output("a", 1, 4, b"two\nthree\n", KEEP)

    assert [output(ledger, offset) for offset in (0, 2, 4, 6, 14)] == [
        b"one\ntwo\nthree\n",
        b"e\ntwo\nthree\n",
        b"two\nthree\n",
        b"o\nthree\n",
        b"",
    ]
    assert ledger.read_output("a", 14, None).total_bytes == 14


def test_what_is_sent_twice_is_there_once(ledger: StreamLedger) -> None:
    for _ in range(2):
        assert ledger.publish_output("a", 1, 0, b"one\n", KEEP)
        assert ledger.publish_value("a", 1, 1, b"value", 5)

    assert output(ledger) == b"one\n"
    assert ledger.take_values("a", "client").values == [b"value"]


def test_nothing_of_a_stale_attempt_appears(ledger: StreamLedger) -> None:
    assert ledger.publish_output("a", 1, 0, b"first\n", KEEP)
    assert ledger.publish_value("a", 1, 1, b"first", 5)
    begin_again(ledger)

    assert not ledger.publish_output("a", 1, 6, b"stale\n", KEEP)
    assert ledger.publish_value("a", 1, 2, b"stale", 10) is None
    assert ledger.look_at_reader("a", 1, 1, 5) is None
    assert ledger.publish_output("a", 2, 0, b"second\n", KEEP)
    assert ledger.publish_value("a", 2, 1, b"second", 6)
    assert output(ledger) == b"first\nsecond\n"
    assert ledger.take_values("a", "client").values == [b"second"]

    end(ledger, attempt=2)
    assert not ledger.publish_output("a", 2, 7, b"late\n", KEEP)
    assert ledger.publish_value("a", 2, 2, b"late", 10) is None


def test_a_rerun_is_read_from_its_beginning_unless_values_were_taken_before(ledger: StreamLedger) -> None:
    early = ledger.take_values("a", "client")
    ledger.publish_value("a", 1, 1, b"first", 5)
    taken = ledger.take_values("a", "client", early.position)
    assert taken.values == [b"first"]
    begin_again(ledger)
    ledger.publish_value("a", 2, 1, b"second", 6)

    assert ledger.take_values("a", "client", taken.position).values == [b"second"]
    with pytest.raises(StreamRestartedError):
        ledger.take_values("a", "client", taken.position, Position("1", 1, 5))


def test_output_keeps_its_end_and_says_what_is_missing(ledger: StreamLedger) -> None:
    for number in range(100):
        assert ledger.publish_output("a", 1, 1000 * number, b"%03d" % number + bytes(997), 5000)
    printed = ledger.read_output("a", 0, None)

    assert [data[:3] for _, data in printed.pieces] == [b"095", b"096", b"097", b"098", b"099"]
    assert [before for before, _ in printed.pieces] == [95_000, 96_000, 97_000, 98_000, 99_000]
    assert printed.total_bytes == 100_000


def test_a_reader_takes_values_in_order_and_nothing_of_them_stays(ledger: StreamLedger) -> None:
    for number in range(1, 31):
        ledger.publish_value("a", 1, number, b"%d" % number, 3 * number)
    known = now = None
    read: list[bytes] = []
    while (found := ledger.take_values("a", "client", known, now)).values:
        known = found.position
        read += found.values
        now = Position(known.attempt, known.taken + len(found.values), known.taken_bytes + 3 * len(found.values))

    assert read == [b"%d" % number for number in range(1, 31)]
    assert ledger.redis.xlen(keys.values("a")) == 0
    assert ledger.redis.hget(keys.call("a"), "taken_bytes") == b"90"


def test_another_reader_goes_on_where_the_last_one_stopped_and_both_at_once_are_refused(ledger: StreamLedger) -> None:
    for number in range(1, 5):
        ledger.publish_value("a", 1, number, b"%d" % number, number)
    first = ledger.take_values("a", "client")
    ledger.take_values("a", "client", first.position, Position("1", 2, 2))
    second = ledger.take_values("a", "other")
    assert second.values == [b"3", b"4"]

    ledger.take_values("a", "other", second.position, Position("1", 3, 3))
    with pytest.raises(ReadElsewhereError):
        ledger.take_values("a", "client", Position("1", 2, 2), Position("1", 4, 4))


def test_a_worker_that_waits_is_told_when_values_are_taken_and_only_then(ledger: StreamLedger) -> None:
    pubsub = ledger.redis.pubsub()
    pubsub.subscribe(keys.reader_news("first", "a"))
    for number in range(1, WINDOW_VALUES):
        ledger.publish_value("a", 1, number, b"v", number)
    found = ledger.take_values("a", "client")
    found = ledger.take_values("a", "client", found.position, Position("1", 1, 1))
    assert list(heard(pubsub)) == []

    ledger.publish_value("a", 1, WINDOW_VALUES, b"v", WINDOW_VALUES)
    progress = ledger.publish_value("a", 1, WINDOW_VALUES + 1, b"v", WINDOW_VALUES + 1)
    assert progress is not None
    assert (progress.taken, progress.taken_bytes) == (1, 1)
    found = ledger.take_values("a", "client", found.position, Position("1", 3, 3))
    assert list(heard(pubsub)) == [b"news a"]
    progress = ledger.look_at_reader("a", 1, WINDOW_VALUES + 1, WINDOW_VALUES + 1)
    assert progress is not None
    assert (progress.taken, progress.taken_bytes, progress.stop) == (3, 3, False)


def test_a_reader_that_found_nothing_is_told_once_when_there_is_something(ledger: StreamLedger) -> None:
    pubsub = ledger.redis.pubsub()
    pubsub.subscribe(keys.replies("client"), keys.replies("other"))
    for client in ("client", "other"):
        ledger.read_output("a", 0, client)
    ledger.take_values("a", "client")
    ledger.publish_output("a", 1, 0, b"x", KEEP)
    ledger.publish_output("a", 1, 1, b"y", KEEP)
    assert list(heard(pubsub)) == [b"news a", b"news a"]

    ledger.take_values("a", "client")
    ledger.publish_value("a", 1, 1, b"v", 1)
    ledger.publish_value("a", 1, 2, b"w", 2)
    assert list(heard(pubsub)) == [b"news a"]


def test_a_worker_sees_whether_the_reader_lives(ledger: StreamLedger) -> None:
    def lives() -> bool:
        progress = ledger.look_at_reader("a", 1, 0, 0)
        assert progress is not None
        return progress.reader_lives

    assert not lives()
    pubsub = ledger.redis.pubsub()
    pubsub.subscribe(keys.replies("other"))
    assert list(heard(pubsub)) == []
    assert not lives(), "another client"
    ledger.take_values("a", "other")
    assert lives()


def test_a_call_whose_values_nobody_wants_ends_or_is_told_to_stop(ledger: StreamLedger) -> None:
    ledger.submit("b", "message", "client")
    ledger.stop_values("b")
    assert ledger.cancel("b") is Cancelled.ENDED

    ledger.stop_values("a")
    progress = ledger.look_at_reader("a", 1, 0, 0)
    assert progress is not None
    assert progress.stop


def test_what_is_left_expires_with_the_result(ledger: StreamLedger) -> None:
    ledger.publish_output("a", 1, 0, b"x", KEEP)
    ledger.publish_value("a", 1, 1, b"v", 1)
    assert ledger.redis.ttl(keys.output("a")) > 1000, "a running call may go on for long"
    end(ledger)

    for name in (keys.call("a"), keys.output("a"), keys.values("a")):
        assert 0 < ledger.redis.ttl(name) <= 100


def test_what_a_killed_redis_has_forgotten_is_noticed_or_made_up_for(ledger: StreamLedger) -> None:
    for number in range(1, 7):
        ledger.publish_value("a", 1, number, b"v", number)
    first = ledger.take_values("a", "client")
    second = ledger.take_values("a", "client", first.position, Position("1", 2, 2))
    ledger.redis.hset(keys.call("a"), mapping={"taken": 0, "taken_bytes": 0})
    third = ledger.take_values("a", "client", second.position, Position("1", 3, 3))
    assert third.position == Position("1", 3, 3)

    ledger.redis.xdel(keys.values("a"), "1-5")
    with pytest.raises(ValuesLostError):
        ledger.take_values("a", "client", third.position)
