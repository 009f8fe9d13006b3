"""A cluster with signing keys takes what is signed, and nothing else; who can write to Redis can't change that."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

import readie
from readie import InvalidRequestError, remote
from readie.ledger.routing import RoutingLedger
from readie.pickling import dump_call
from readie.protocol import keys, task
from readie.protocol.call import CallHeader, Placement
from readie.protocol.payload import Pickled, encode
from readie.protocol.signing import Keyring
from readie.stack.readiness import announced_workers
from tests.doors.shut_cluster import KEYS, ShutCluster
from tests.local_stack import eventually

SECONDS = 60
OLD, NEW = KEYS.split(",")
PYTHON = f"{__import__('sys').version_info.major}.{__import__('sys').version_info.minor}"

pytestmark = pytest.mark.usefixtures("client")


@pytest.fixture
def redis(cluster: ShutCluster) -> Iterator[Redis]:
    """What somebody has who can write to Redis, and has no key."""
    with cluster.redis() as redis:
        yield redis


@remote
def double(number: int) -> int:
    return 2 * number


@remote
def large(size: int) -> bytes:
    return b"x" * size


def forged(redis: Redis) -> int:
    return int(redis.get(keys.FORGED) or 0)  # type: ignore[arg-type]


def header(call_id: str, payload: bytes, **fields: Any) -> CallHeader:
    given = {"payload_bytes": len(payload), "payload_by_reference": False, **fields}
    return CallHeader(protocol=1, id=call_id, name="f", python=PYTHON, **given)


def submit(redis: Redis, call: CallHeader, payload: bytes) -> readie.Call[Any]:
    inline = None if call.payload_by_reference else payload
    message = task.encode(call, task.encode_body(inline), "test")
    RoutingLedger(redis).submit(call.id, message, "nobody", [payload] if inline is None else None)
    return readie.get_call(call.id)


def test_what_is_not_signed_is_refused_and_counted(cluster: ShutCluster, redis: Redis) -> None:
    before = forged(redis)
    readie.configure(redis_url=cluster.url_of("alice"), signing_keys="mine:" + "m" * 32)
    with pytest.raises(InvalidRequestError, match=r"the router refuses the call: .*key 'mine', which is not known"):
        double(1)
    payload = dump_call(lambda: 1, (), {})
    with pytest.raises(InvalidRequestError, match="not signed"):
        submit(redis, header("alice.unsigned", payload), payload).result(SECONDS)
    # The caller is told first.
    eventually(lambda: forged(redis) == before + 2, "both are counted")
    letters = json.loads(cluster.readie("dead-letters", "--json", user="admin").stdout)
    assert "not signed" in json.dumps(letters)
    assert f"{before + 2} refused" in cluster.readie("status").stdout


@pytest.mark.parametrize("by_reference", [False, True])
def test_a_payload_that_was_changed_on_its_way_does_not_run(redis: Redis, by_reference: bool) -> None:
    before = forged(redis)
    signed, other = dump_call(lambda: "the client's", (), {}), dump_call(lambda: "another's", (), {})
    call = header(f"alice.changed-{by_reference}", signed, payload_by_reference=by_reference)
    call = submit(redis, Keyring(KEYS).sign_call(call, [signed]), other)
    with pytest.raises(InvalidRequestError, match="the worker refuses the call: function and arguments are not those"):
        call.result(SECONDS)
    assert forged(redis) == before + 1


def test_a_call_that_ended_does_not_run_again(redis: Redis) -> None:
    payload = dump_call(lambda: "ran", (), {})
    signed = Keyring(KEYS).sign_call(header("alice.replayed", payload), [payload])
    call = submit(redis, signed, payload)
    assert call.result(SECONDS) == "ran"
    ended = redis.get(keys.result(call.id))
    redis.lpush(keys.SUBMIT_QUEUE, task.encode(signed, task.encode_body(payload), "test"))
    eventually(lambda: not redis.llen(keys.SUBMIT_QUEUE), "the router has taken it")
    assert double(4) == 8
    assert redis.get(keys.result(call.id)) == ended
    assert redis.hget(keys.call(call.id), "attempt") == b"1"


def test_a_placement_that_no_router_has_made_is_refused(redis: Redis) -> None:
    """Whoever can write to a worker's queue can't choose what runs there, nor send there what was meant for another."""
    before = forged(redis)
    (worker,) = announced_workers(redis)
    payload = dump_call(lambda: "ran", (), {})
    call = Keyring(KEYS).sign_call(header("alice.misplaced", payload), [payload])
    placement = Placement(
        worker=worker.name, incarnation=worker.incarnation, attempt=1, checkpoint_id=None, reason="mine"
    )
    elsewhere = placement.model_copy(update={"worker": "another@host"})
    signed = Keyring(KEYS).sign_placement(call.model_copy(update={"placement": elsewhere})).placement
    assert signed is not None
    for forgery in (placement, placement.model_copy(update={"signature": signed.signature})):
        placed = call.model_copy(update={"placement": forgery})
        message = json.loads(task.encode(placed, task.encode_body(payload), "test"))
        message["properties"]["delivery_info"]["routing_key"] = keys.worker_queue(worker.name)
        redis.lpush(keys.worker_queue(worker.name), json.dumps(message))
    eventually(lambda: forged(redis) == before + 2, "both are refused")
    reasons = [letter.reason for letter in RoutingLedger(redis).dead_letters()[:2]]
    assert any("not signed by a router" in reason for reason in reasons)
    assert any("placement's signature is wrong" in reason for reason in reasons)
    assert double(1) == 2


class _Bomb:
    def __init__(self, marker: Path) -> None:
        self._marker = str(marker)

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (f"open({self._marker!r}, 'w').close()",)


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_client_unpickles_no_result_that_a_worker_has_not_signed(redis: Redis, tmp_path: Path, size: int) -> None:
    call = large.spawn(size)
    assert call.result(SECONDS) == b"x" * size
    bomb = b"".join(encode([Pickled(pickle.dumps(_Bomb(tmp_path / "loaded")))]))
    if size > 10_000:
        stored = redis.get(keys.value(call.id, 1))
        assert isinstance(stored, bytes)
        redis.set(keys.value(call.id, 1), stored[:64] + bomb.ljust(len(stored) - 64, b"\0"))
    else:
        result = json.loads(redis.get(keys.result(call.id)))  # type: ignore[arg-type]
        result["result"] |= {"value": base64.b64encode(bomb).decode(), "value_bytes": len(bomb)}
        redis.set(keys.result(call.id), json.dumps(result))
    with pytest.raises(readie.SignatureError, match="can't be trusted"):
        readie.get_call(call.id).result(SECONDS)
    assert not (tmp_path / "loaded").exists()


def test_a_client_unpickles_no_value_that_a_worker_has_not_signed(redis: Redis, tmp_path: Path) -> None:
    bomb = b"".join(encode([Pickled(pickle.dumps(_Bomb(tmp_path / "loaded")))]))
    RoutingLedger(redis).submit("alice.stream", "{}", "nobody")
    redis.hset(
        keys.call("alice.stream"), mapping={"state": "running", "attempt": 1, "values_attempt": 1, "incarnation": "i"}
    )
    redis.xadd(keys.values("alice.stream"), {"value": bomb}, id="1-1")
    with pytest.raises(readie.SignatureError, match="a value can't be trusted: it is not signed"):
        next(readie.get_call("alice.stream").stream())
    assert not (tmp_path / "loaded").exists()


def test_keys_are_rotated_while_calls_run(cluster: ShutCluster) -> None:
    """Clients that sign with the new key, and those that only know the old one, work with the same cluster."""
    for known in (f"{NEW},{OLD}", OLD):
        readie.configure(redis_url=cluster.url_of("alice"), signing_keys=known)
        assert double(5) == 10
    readie.configure(redis_url=cluster.url_of("alice"), signing_keys=NEW)
    with pytest.raises(readie.SignatureError, match="key 'old', which is not known here"):
        double(5)
