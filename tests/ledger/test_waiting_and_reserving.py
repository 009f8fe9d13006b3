"""What the ledger lets wait, reserve and expire."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from redis import Redis

from readie.ledger import NoRoom, Placed
from readie.ledger.routing import Addressed, Broken, Parked, Parking, RoutingLedger, Waiting
from readie.protocol import keys
from readie.protocol.announcement import Announcement
from readie.protocol.call import CallHeader, CallOptions, Placement
from readie.protocol.dead_letter import MOST_DEAD_LETTERS, DeadLetter
from readie.protocol.envelope import CallState, Envelope

WORKER = "worker1@test"


@pytest.fixture
def ledger(redis: Redis) -> RoutingLedger:
    return RoutingLedger(redis)


def announce(
    ledger: RoutingLedger, *, slots: int = 100, memory: int | None = None, call_memory: int | None = None
) -> None:
    announcement = Announcement(
        name=WORKER,
        incarnation="first",
        pid=1,
        slots=slots,
        flavor="default",
        python="3.11",
        runsc_version="1",
        generation=None,
        catalogue=None,
        memory_bytes=memory,
        call_memory_bytes=call_memory,
    )
    ledger.announce(announcement, lease_seconds=100)


def submit(
    ledger: RoutingLedger, call_id: str, *, memory: int | None = None, expires: float | None = None
) -> CallHeader:
    ledger.submit(call_id, f"message of {call_id}", "client", expires_seconds=expires)
    return CallHeader(
        protocol=1,
        id=call_id,
        name="f",
        python="3.11",
        options=CallOptions(memory_bytes=memory),
        payload_bytes=1,
        payload_by_reference=False,
        placement=Placement(worker=WORKER, incarnation="first", attempt=1, checkpoint_id=None, reason="test"),
    )


def place(ledger: RoutingLedger, call: CallHeader) -> object:
    (outcome,) = ledger.place_all("router", [Addressed(call, "readdressed", b"")])
    return outcome


def park(
    ledger: RoutingLedger, call_id: str, *, group: str = "group", priority: int = 0, why: str = "full", most: int = 100
) -> bool | Broken:
    (outcome,) = ledger.park_all("router", "0", most, [Parking(call_id, b"", group, priority, why)])
    return outcome


def end(ledger: RoutingLedger, call_id: str, attempt: int = 1) -> None:
    assert ledger.finish(Envelope(id=call_id, state=CallState.DONE), attempt=attempt, keep_seconds=60) is not None


def waiting(ledger: RoutingLedger, *groups: str, most: int = 100) -> list[str]:
    return [call.call_id for call in ledger.waiting(groups, most)]


def test_waiting_calls_are_ordered_by_priority_then_age_over_all_groups(ledger: RoutingLedger) -> None:
    for number, (group, priority) in enumerate([("a", 0), ("b", 5), ("a", 9), ("b", 0), ("a", 5)]):
        submit(ledger, f"c{number}")
        assert park(ledger, f"c{number}", group=group, priority=priority) is Parked.WAITS
    assert waiting(ledger, "a", "b") == ["c2", "c1", "c4", "c0", "c3"]
    assert waiting(ledger, "a", "b", most=2) == ["c2", "c1"]
    assert waiting(ledger, "b") == ["c1", "c3"]
    assert ledger.redis.zrange(keys.WAITING, 0, -1) == [b"c2", b"c1", b"c4", b"c0", b"c3"]


def test_why_a_group_waits_is_said_once_for_all_its_calls(ledger: RoutingLedger) -> None:
    for call_id in ("one", "two"):
        submit(ledger, call_id)
        park(ledger, call_id, why="at first")
    ledger.explain_waiting({"group": "by now", "gone": "never"})
    assert ledger.waiting_groups() == {"group": "by now"}
    assert ledger.state("one") == ledger.state("two") == (CallState.QUEUED, "by now")


def test_a_group_goes_with_its_last_call(ledger: RoutingLedger, redis: Redis) -> None:
    announce(ledger)
    for call_id in ("placed", "ended", "cancelled"):
        call = submit(ledger, call_id)
        park(ledger, call_id)
    assert isinstance(place(ledger, call.model_copy(update={"id": "placed"})), Placed)
    end(ledger, "ended", attempt=0)
    assert waiting(ledger, "group") == ["cancelled"]
    assert ledger.waiting_groups() == {"group": "full"}
    ledger.cancel("cancelled")
    assert redis.exists(keys.WAITING, keys.WAITING_GROUPS, keys.waiting_group("group")) == 0
    assert redis.hget(keys.call("placed"), "group") is None


def test_a_call_that_waits_already_keeps_its_place(ledger: RoutingLedger) -> None:
    submit(ledger, "a")
    park(ledger, "a", group="first")
    assert park(ledger, "a", group="second", most=0) is Parked.WAITS
    assert waiting(ledger, "first", "second") == ["a"]


def test_a_call_past_being_placed_is_not_parked(ledger: RoutingLedger, redis: Redis) -> None:
    announce(ledger)
    place(ledger, submit(ledger, "a"))
    assert park(ledger, "a") is Parked.WAITS
    assert redis.exists(keys.WAITING) == 0


def test_a_call_too_many_is_neither_parked_nor_settled(ledger: RoutingLedger, redis: Redis) -> None:
    submit(ledger, "a")
    submit(ledger, "b")
    ledger.take("router", 2)
    items = [Parking(call_id, f"message of {call_id}".encode(), "group", 0, "full") for call_id in ("a", "b")]
    assert ledger.park_all("router", "0", 1, items) == [Parked.WAITS, Parked.QUEUE_FULL]
    assert redis.lrange(keys.router_taken("router"), 0, -1) == [b"message of b"]
    assert waiting(ledger, "group") == ["a"]


def test_a_spoiled_record_breaks_its_own_parking_only(ledger: RoutingLedger, redis: Redis) -> None:
    redis.set(keys.call("spoiled"), "not a record")
    submit(ledger, "good")
    items = [Parking(call_id, b"", "group", 0, "full") for call_id in ("spoiled", "good")]
    spoiled, good = ledger.park_all("router", "0", 100, items)
    assert isinstance(spoiled, Broken)
    assert good is Parked.WAITS


def test_many_ends_wake_a_router_once_until_it_looks(ledger: RoutingLedger, redis: Redis) -> None:
    announce(ledger)
    for number in range(10):
        place(ledger, submit(ledger, f"c{number}"))
    submit(ledger, "waits")
    redis.delete(keys.SUBMIT_QUEUE)
    park(ledger, "waits")
    redis.delete(keys.SUBMIT_QUEUE)
    for number in range(9):
        end(ledger, f"c{number}")
    assert redis.lrange(keys.SUBMIT_QUEUE, 0, -1) == [keys.WAKE.encode()]
    # It looks now: what is freed from here on, it may not have seen.
    ledger.take("router", 1)
    end(ledger, "c9")
    assert redis.lrange(keys.SUBMIT_QUEUE, 0, -1) == [keys.WAKE.encode()]


def test_memory_is_reserved_with_the_slot_and_freed_with_it(ledger: RoutingLedger, redis: Redis) -> None:
    announce(ledger, memory=100, call_memory=30)
    assert isinstance(place(ledger, submit(ledger, "a", memory=60)), Placed)
    assert place(ledger, submit(ledger, "b", memory=41)) == NoRoom("full")
    assert isinstance(place(ledger, submit(ledger, "c")), Placed)
    assert place(ledger, submit(ledger, "d")) == NoRoom("full")
    (seen,) = ledger.look().workers.values()
    assert (seen.busy, seen.reserved_bytes) == (2, 90)
    assert ledger.requeue("a", WORKER, "first") == "requeued"
    (seen,) = ledger.look().workers.values()
    assert (seen.busy, seen.reserved_bytes) == (1, 30)
    end(ledger, "c")
    assert redis.exists(keys.worker_memory(WORKER)) == 0


def test_memory_is_not_freed_twice(ledger: RoutingLedger) -> None:
    announce(ledger, memory=100)
    place(ledger, submit(ledger, "a", memory=50))
    place(ledger, submit(ledger, "b", memory=20))
    end(ledger, "a")
    ledger.drop_held(WORKER, "a")
    ledger.requeue("a", WORKER, "first")
    (seen,) = ledger.look().workers.values()
    assert seen.reserved_bytes == 20


def test_no_race_reserves_more_memory_than_there_is(ledger: RoutingLedger) -> None:
    announce(ledger, memory=100)
    calls = [submit(ledger, f"c{number}", memory=7) for number in range(60)]
    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(lambda call: place(ledger, call), calls))
    assert sum(isinstance(outcome, Placed) for outcome in outcomes) == 100 // 7
    (seen,) = ledger.look().workers.values()
    assert seen.reserved_bytes == 7 * (100 // 7)


def test_large_sizes_are_added_exactly(ledger: RoutingLedger) -> None:
    announce(ledger, memory=2**53)
    for call_id, size in (("a", 2**52 + 1), ("b", 2**51 + 3)):
        assert isinstance(place(ledger, submit(ledger, call_id, memory=size)), Placed)
    (seen,) = ledger.look().workers.values()
    assert seen.reserved_bytes == 2**52 + 2**51 + 4


def test_a_call_can_be_begun_before_its_expiry_and_not_after(ledger: RoutingLedger, redis: Redis) -> None:
    announce(ledger)
    early, late = submit(ledger, "early", expires=1000), submit(ledger, "late", expires=1000)
    place(ledger, early)
    place(ledger, late)
    redis.hset(keys.call("late"), "expires_at", 1)
    assert ledger.claim(early) is not None
    assert ledger.claim(late) is None
    assert redis.zrange(keys.EXPIRIES, 0, -1) == [b"late"]


def test_what_was_begun_in_time_can_be_placed_and_begun_again(ledger: RoutingLedger, redis: Redis) -> None:
    announce(ledger)
    call = submit(ledger, "a", expires=1000)
    place(ledger, call)
    ledger.claim(call)
    assert redis.hget(keys.call("a"), "expires_at") is None
    assert ledger.records(["a"])[0].expires_at is None


def test_the_soonest_to_expire_come_first_with_the_seconds_left(ledger: RoutingLedger) -> None:
    submit(ledger, "later", expires=2000)
    submit(ledger, "never")
    submit(ledger, "sooner", expires=1000)
    (first, left), (second, _) = ledger.expiring(10)
    assert (first, second) == ("sooner", "later")
    assert 0 < left <= 1000


@pytest.mark.parametrize("finish", [True, False], ids=["ended", "cancelled"])
def test_an_ended_call_leaves_no_expiry(ledger: RoutingLedger, redis: Redis, finish: bool) -> None:
    submit(ledger, "a", expires=1000)
    if finish:
        end(ledger, "a", attempt=0)
    else:
        ledger.cancel("a")
    assert redis.exists(keys.EXPIRIES) == 0


def test_a_checkpoint_is_avoided_until_its_time_is_over(ledger: RoutingLedger, redis: Redis) -> None:
    announce(ledger)
    ledger.avoid(WORKER, "checkpoint_1")
    ledger.avoid(WORKER, "checkpoint_2")
    redis.zadd(keys.worker_avoided(WORKER), {"checkpoint_1": 1})
    (seen,) = ledger.look().workers.values()
    assert seen.avoided == [b"checkpoint_2"]
    ledger.avoid(WORKER, "checkpoint_3")
    assert redis.zrange(keys.worker_avoided(WORKER), 0, -1) == [b"checkpoint_2", b"checkpoint_3"]
    assert redis.ttl(keys.worker_avoided(WORKER)) > 0


def test_dead_letters_are_kept_newest_first_up_to_a_number(ledger: RoutingLedger) -> None:
    for number in range(MOST_DEAD_LETTERS + 3):
        ledger.bury(DeadLetter.of(f"item {number}".encode(), "queue", "reason"))
    letters = ledger.dead_letters()
    assert len(letters) == MOST_DEAD_LETTERS
    assert letters[0].item == f"item {MOST_DEAD_LETTERS + 2}"
    assert ledger.dead_letters(clear=True) == letters
    assert ledger.dead_letters() == []


def test_a_waiting_entry_is_what_it_was_parked_as(ledger: RoutingLedger) -> None:
    ledger.submit("a", "message", "client")
    park(ledger, "a", priority=2)
    assert ledger.waiting(["group"], 1) == [Waiting(-2e10, "a", "group")]
