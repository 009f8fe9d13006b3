"""A session's record: who opens, who comes next, and what its end does to its calls."""

from __future__ import annotations

import pytest
from redis import Redis

from readie.ledger import Placed
from readie.ledger.result import decode_result
from readie.ledger.routing import Addressed
from readie.ledger.sessions import CanNot, Joined, Joining, Open, Owner, SessionLedger, Waits
from readie.protocol import keys
from readie.protocol.announcement import Announcement
from readie.protocol.call import CallHeader, CallOptions, Placement, SessionUse
from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import CallState, Envelope, Failure
from readie.protocol.session import SessionState

WORKER = "worker1@test"
ANNOUNCEMENT = Announcement(
    name=WORKER,
    incarnation="first",
    pid=1,
    slots=1,
    flavor="default",
    python="3.11",
    runsc_version="1",
    generation=None,
    catalogue=None,
    max_sessions=1,
    memory_bytes=1000,
)


def header(call_id: str, **use: object) -> CallHeader:
    return CallHeader(
        protocol=1,
        id=call_id,
        name="f",
        python="3.11",
        options=CallOptions(memory_bytes=100),
        session=SessionUse.model_validate({"id": "s", "idle_ttl_seconds": 300, **use}),
        payload_bytes=1,
        payload_by_reference=False,
    )


def placed(call: CallHeader, sandbox: str | None = None, attempt: int = 1) -> CallHeader:
    placement = Placement(
        worker=WORKER, incarnation="first", attempt=attempt, checkpoint_id=None, reason="test", sandbox=sandbox
    )
    return call.model_copy(update={"placement": placement})


@pytest.fixture
def ledger(redis: Redis) -> SessionLedger:
    """A ledger with one worker of one slot that keeps one session."""
    ledger = SessionLedger(redis)
    ledger.announce(ANNOUNCEMENT, lease_seconds=100)
    return ledger


def join(ledger: SessionLedger, call_id: str, *, known: str = "", **use: object) -> Joined:
    call = header(call_id, **use)
    ledger.submit(call_id, f"message {call_id}", "client")
    ledger.redis.delete(keys.SUBMIT_QUEUE)
    return join_again(ledger, call, known)


def join_again(ledger: SessionLedger, call: CallHeader, known: str = "", attempt: int = 1) -> Joined:
    (joined,) = ledger.join_all("router", 10, [Joining(call, attempt, b"", known, f"to {known} {call.id}")])
    return joined


def open_session(ledger: SessionLedger) -> CallHeader:
    """Return the call that has opened the session and runs in it."""
    assert join(ledger, "opener") == Open(None)
    call = placed(header("opener"))
    (outcome,) = ledger.place_all("router", [Addressed(call, "to the worker", b"")])
    assert isinstance(outcome, Placed)
    assert ledger.claim(call)
    assert ledger.bind(call, "sandbox", None, "default", "3.11")
    ledger.redis.delete(keys.worker_queue(WORKER))
    return call


def finish(ledger: SessionLedger, call_id: str, attempt: int = 1, failure: Failure | None = None) -> None:
    state = CallState.DONE if failure is None else CallState.FAILED
    assert ledger.finish(Envelope(id=call_id, state=state, failure=failure), attempt=attempt, keep_seconds=60)


def state(ledger: SessionLedger) -> SessionState | None:
    (record,) = ledger.session_records(["s"])
    return None if record is None else record.state


def ended(ledger: SessionLedger, call_id: str) -> Envelope:
    text = ledger.redis.get(keys.result(call_id))
    assert isinstance(text, bytes)
    return decode_result(text)


def on_queue(ledger: SessionLedger) -> list[bytes]:
    return list(ledger.redis.lrange(keys.session_queue("sandbox"), 0, -1))


def test_of_two_that_come_at_once_one_opens_and_the_other_waits(ledger: SessionLedger) -> None:
    assert join(ledger, "a") == Open(None)
    assert join(ledger, "b") == Waits()
    assert join_again(ledger, header("a")) == Open(None), "it may be asked again"
    assert join_again(ledger, header("b")) == Waits()
    assert ledger.redis.llen(keys.session_calls("s")) == 1


def test_one_runs_at_a_time_in_the_order_in_which_they_came(ledger: SessionLedger) -> None:
    open_session(ledger)
    assert isinstance(join(ledger, "a"), Owner)
    assert join_again(ledger, header("a"), "sandbox") == Waits()
    assert join(ledger, "b", known="sandbox") == Waits()
    assert on_queue(ledger) == []
    finish(ledger, "opener")
    assert on_queue(ledger) == [b"to sandbox a"]
    assert ledger.claim(placed(header("a"), "sandbox"))
    finish(ledger, "a")
    assert on_queue(ledger) == [b"to sandbox b", b"to sandbox a"]
    assert state(ledger) is SessionState.BUSY
    assert ledger.claim(placed(header("b"), "sandbox"))
    finish(ledger, "b")
    assert state(ledger) is SessionState.IDLE
    assert isinstance(join(ledger, "c", known="sandbox"), Placed)


def test_a_session_takes_its_calls_past_the_workers_slots_and_holds_its_memory(ledger: SessionLedger) -> None:
    open_session(ledger)
    finish(ledger, "opener")
    assert ledger.redis.hget(keys.worker_memory(WORKER), keys.TOTAL) == b"100"
    other = placed(header("other", id="other"))
    ledger.submit("plain", "message", "client")
    plain = other.model_copy(update={"id": "plain", "session": None})
    ledger.place_all("router", [Addressed(plain, "message", b"")])
    assert isinstance(join(ledger, "a", known="sandbox"), Placed), "the one slot is taken"
    ledger.end_session("s", SessionState.CLOSED, "was closed")
    finish(ledger, "plain")
    assert ledger.redis.exists(keys.worker_memory(WORKER)) == 0
    assert sorted(ledger.redis.keys("readie:worker-session*") + ledger.redis.keys("readie:worker-idle*")) == []


def test_a_session_has_what_its_worker_gives_by_itself_where_the_opener_asked_for_no_memory(
    ledger: SessionLedger,
) -> None:
    assert join(ledger, "opener") == Open(None)
    call = placed(header("opener").model_copy(update={"options": CallOptions()}))
    ledger.announce(ANNOUNCEMENT.model_copy(update={"call_memory_bytes": 300}), 1000)
    ledger.place_all("router", [Addressed(call, "m", b"")])
    ledger.claim(call)
    ledger.bind(call, "sandbox", None, "default", "3.11")
    told = join(ledger, "a")
    assert isinstance(told, Owner)
    assert told.memory_bytes == 300


def test_a_worker_keeps_as_many_sessions_as_it_says(ledger: SessionLedger) -> None:
    open_session(ledger)
    finish(ledger, "opener")
    assert join(ledger, "a", id="another") == Open(None)
    (outcome,) = ledger.place_all("router", [Addressed(placed(header("a", id="another")), "m", b"")])
    assert getattr(outcome, "reason", None) == "full"


@pytest.mark.parametrize("lacking", ["sessions", "memory"])
def test_the_session_idle_for_longest_goes_where_the_worker_allows_it(ledger: SessionLedger, lacking: str) -> None:
    open_session(ledger)
    evicting = ANNOUNCEMENT.model_copy(
        update={"evicts_idle_sessions": True, "max_sessions": 1 if lacking == "sessions" else 2, "memory_bytes": 199}
    )
    ledger.announce(evicting, lease_seconds=100)
    assert join(ledger, "a", id="another") == Open(None)
    place_another = [Addressed(placed(header("a", id="another")), "m", b"")]
    assert ledger.look().workers[WORKER.encode()].sessions == 1
    finish_later = ledger.place_all("router", place_another)
    assert getattr(finish_later[0], "reason", None) == "full", "a busy one stays"
    finish(ledger, "opener")
    seen = ledger.look().workers[WORKER.encode()]
    assert (seen.sessions, seen.reserved_bytes) == (0, 0)
    (outcome,) = ledger.place_all("router", place_another)
    assert isinstance(outcome, Placed)
    assert state(ledger) is SessionState.EXPIRED
    assert join(ledger, "b") == CanNot("expired", "was idle for longest when another call needed its room")


@pytest.mark.parametrize("how", ["cancelled", "failed"])
def test_when_the_opener_never_gets_there_the_next_one_opens(ledger: SessionLedger, how: str) -> None:
    assert join(ledger, "a") == Open(None)
    assert join(ledger, "b") == Waits()
    if how == "cancelled":
        ledger.cancel("a")
    else:
        call = placed(header("a"))
        ledger.place_all("router", [Addressed(call, "m", b"")])
        ledger.claim(call)
        finish(ledger, "a", failure=Failure(code=ErrorCode.SANDBOX_DIED, message="no sandbox"))
    assert ledger.redis.rpop(keys.SUBMIT_QUEUE) == b"message b"
    assert join_again(ledger, header("b")) == Open(None)
    assert ledger.redis.scard(keys.worker_sessions(WORKER)) == 0
    ledger.cancel("b")
    assert state(ledger) is None


def test_a_waiting_call_that_is_cancelled_leaves_the_line(ledger: SessionLedger) -> None:
    open_session(ledger)
    for call_id in ("a", "b"):
        join(ledger, call_id)
        join_again(ledger, header(call_id), "sandbox")
    ledger.cancel("a")
    assert ledger.redis.lrange(keys.session_calls("s"), 0, -1) == [b"b"]
    finish(ledger, "opener")
    assert on_queue(ledger) == [b"to sandbox b"]


def test_a_line_of_waiting_calls_has_an_end(ledger: SessionLedger) -> None:
    open_session(ledger)
    for number in range(10):
        assert join(ledger, f"c{number}", known="sandbox") == Waits()
    assert join(ledger, "one-too-many", known="sandbox") == CanNot("many")


def test_the_end_of_a_session_ends_its_calls_and_is_remembered(ledger: SessionLedger) -> None:
    open_session(ledger)
    join(ledger, "a", known="sandbox")
    with ledger.redis.pubsub() as control:
        control.subscribe(keys.worker_control("first"))
        assert control.get_message(timeout=10)["type"] == "subscribe"
        assert ledger.end_session("s", SessionState.LOST, "was lost")
        words = {control.get_message(timeout=10)["data"] for _ in range(2)}
    assert words == {b"session:sandbox", b"opener"}
    for call_id in ("opener", "a"):
        envelope = ended(ledger, call_id)
        assert envelope.failure == Failure(code=ErrorCode.SESSION_LOST, message="session s was lost")
        assert 0 < envelope.submitted_at <= envelope.ended_at
        assert ledger.redis.zscore(keys.PENDING, call_id) is None
    assert join(ledger, "b") == CanNot("lost", "was lost")
    assert not ledger.end_session("s", SessionState.CLOSED, "was closed")
    assert 0 < int(ledger.redis.ttl(keys.session("s"))) <= 3600
    assert join(ledger, "c", restart_on_loss=True) == Open("was lost")


def test_a_call_that_ends_its_session_ends_by_itself(ledger: SessionLedger) -> None:
    open_session(ledger)
    ledger.end_session("s", SessionState.LOST, "was lost", spare="opener", sandbox="sandbox")
    finish(ledger, "opener", failure=Failure(code=ErrorCode.TIMEOUT, message="too long"))
    assert ended(ledger, "opener").failure == Failure(code=ErrorCode.TIMEOUT, message="too long")


def test_a_session_in_another_sandbox_than_the_callers_is_not_the_callers(ledger: SessionLedger) -> None:
    open_session(ledger)
    assert join(ledger, "a", known="sandbox", sandbox="earlier") == CanNot("unknown")
    assert join(ledger, "b", id="gone", sandbox="earlier") == CanNot("unknown")
    assert join(ledger, "c", id="gone", may_open=False) == CanNot("unknown")


def test_only_an_idle_session_expires(ledger: SessionLedger) -> None:
    assert join(ledger, "opener", idle_ttl_seconds=0.001) == Open(None)
    call = placed(header("opener"))
    ledger.place_all("router", [Addressed(call, "m", b"")])
    ledger.claim(call)
    ledger.bind(call, "sandbox", None, "default", "3.11")
    assert not ledger.end_session("s", SessionState.EXPIRED, "expired", only_if_idle=True)
    finish(ledger, "opener")
    while not ledger.end_session("s", SessionState.EXPIRED, "expired", only_if_idle=True):
        pass
    assert state(ledger) is SessionState.EXPIRED


def test_a_session_closed_before_it_opened_does_not_open(ledger: SessionLedger) -> None:
    assert ledger.end_session("s", SessionState.CLOSED, "was closed", even_unopened=True)
    assert join(ledger, "a") == CanNot("closed", "was closed")


def test_a_sandbox_is_of_no_use_to_a_session_that_ended_meanwhile(ledger: SessionLedger) -> None:
    assert join(ledger, "a") == Open(None)
    call = placed(header("a"))
    ledger.place_all("router", [Addressed(call, "m", b"")])
    ledger.claim(call)
    ledger.end_session("s", SessionState.CLOSED, "was closed")
    assert not ledger.bind(call, "sandbox", None, "default", "3.11")
    assert ledger.redis.scard(keys.worker_sessions(WORKER)) == 0
    assert ended(ledger, "a").failure == Failure(code=ErrorCode.SESSION_EXPIRED, message="session s was closed")


def test_a_call_that_was_not_begun_keeps_its_turn(ledger: SessionLedger) -> None:
    open_session(ledger)
    finish(ledger, "opener")
    assert isinstance(join(ledger, "a", known="sandbox"), Placed)
    assert join(ledger, "b", known="sandbox") == Waits()
    assert ledger.requeue("a", WORKER, "first") == "requeued"
    assert isinstance(join_again(ledger, header("a"), "sandbox", attempt=2), Placed)
    assert ledger.claim(placed(header("a"), "sandbox", attempt=2))
    assert ledger.held_calls(WORKER) == ["a"]


def test_a_call_that_waits_for_its_turn_is_not_lost(ledger: SessionLedger) -> None:
    open_session(ledger)
    join(ledger, "a", known="sandbox")
    assert ledger.readmit("0", -10, 100) == ("0", [])


def test_only_the_sessions_of_earlier_processes_of_a_worker_are_lost(ledger: SessionLedger) -> None:
    open_session(ledger)
    assert not ledger.end_session("s", SessionState.LOST, "was lost", not_incarnation="first")
    assert ledger.end_session("s", SessionState.LOST, "was lost", not_incarnation="second")
    assert join(ledger, "a", id="opening") == Open(None)
    assert not ledger.end_session("opening", SessionState.LOST, "was lost", not_incarnation="second")


def test_it_is_known_whether_a_sessions_sandbox_has_a_gpu(ledger: SessionLedger) -> None:
    opener = open_session(ledger)
    without = join(ledger, "a")
    assert isinstance(without, Owner)
    assert not without.gpu
    ledger.redis.hdel(keys.session("s"), "sandbox", "gpu")
    ledger.redis.hset(keys.session("s"), "state", "opening")
    assert ledger.bind(opener, "sandbox", None, "default", "3.11", gpu=True)
    with_one = join(ledger, "b")
    assert isinstance(with_one, Owner)
    assert with_one.gpu
