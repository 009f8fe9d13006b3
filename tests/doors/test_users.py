"""Each Redis user reaches what its role needs: a client its own calls and sessions, and nobody else's."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError, ResponseError

import readie
from readie import InvalidRequestError, SessionExpiredError, remote
from readie.connection import connect
from readie.ledger import Ledger
from readie.pickling import dump_call
from readie.protocol import keys, task
from readie.protocol.call import CallHeader, CallOptions, SessionUse
from readie.protocol.signing import Keyring
from tests.doors.shut_cluster import KEYS, ShutCluster
from tests.local_stack import eventually

SECONDS = 60
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

pytestmark = pytest.mark.usefixtures("client")


@remote
def secret(size: int) -> bytes:
    print("secret output")
    return b"s" * size


@remote
def never_ends() -> None:
    import time

    time.sleep(1000)


@remote
def remember(value: str) -> str:
    global remembered
    before, remembered = globals().get("remembered", ""), value
    return str(before)


@pytest.fixture
def bob(cluster: ShutCluster) -> Iterator[Redis]:
    """What Bob can do by hand; the functions of these tests are Alice's."""
    with connect(cluster.url_of("bob"), name="test") as redis:
        yield redis


@pytest.fixture
def admin(cluster: ShutCluster) -> Iterator[Redis]:
    with cluster.redis() as redis:
        yield redis


def denied(redis: Redis, *command: Any) -> bool:
    """Return whether Redis refuses a command for want of a right, and not for another reason."""
    try:
        redis.execute_command(*command)
    except NoPermissionError:
        return True
    except ResponseError as error:
        return str(error).startswith("The user executing the script can't")
    return False


def forged(redis: Redis) -> int:
    return int(redis.get(keys.FORGED) or 0)  # type: ignore[arg-type]


def test_a_client_can_not_look_at_or_touch_what_another_has(cluster: ShutCluster, bob: Redis) -> None:
    call = secret.spawn(100_000)
    running = never_ends.spawn()
    assert len(call.result(SECONDS)) == 100_000
    assert call.id.startswith("alice.")
    with readie.session() as session:
        remember.options(session=session)("alice's")
        record, result = keys.call(call.id), keys.result(call.id)
        session_key = keys.session(f"alice.{session.id}")
        for command in (
            *(("HGETALL", record), ("HSET", record, "state", "queued"), ("DEL", record)),
            *(("HGETALL", keys.message(running.id)), ("HSET", keys.message(running.id), "submitted", "x")),
            *(("GET", result), ("SET", result, "x"), ("GETRANGE", keys.value(call.id, 1), 0, -1)),
            *(("GET", keys.payload(call.id)), ("SET", keys.payload(call.id), "x")),
            *(("XRANGE", keys.output(call.id), "-", "+"), ("XRANGE", keys.values(call.id), "-", "+")),
            *(("HGETALL", session_key), ("HSET", session_key, "sandbox", "x")),
            *(("BLPOP", keys.explanation("alice.1"), 1), ("SET", keys.wish("alice.1"), f"cancel {running.id}")),
            ("PUBLISH", keys.replies(running._client._replies.client_id), "x"),
            ("SUBSCRIBE", keys.replies(running._client._replies.client_id)),
            ("EVAL", f"return redis.call('GET', '{result}')", 0),
        ):
            assert denied(bob, *command), command
    client = readie.Client(redis_url=cluster.url_of("bob"), signing_keys=KEYS)
    for use in (lambda: client.get_call(call.id), lambda: client.cancel(running.id), lambda: client.status(call.id)):
        with pytest.raises(readie.ReadieError, match="does not let this user"):
            use()
    client.close()
    # By another way: a wish of his own about her call.
    bob.set(keys.wish("bob.1"), f"cancel {running.id}")
    bob.lpush(keys.SUBMIT_QUEUE, f"{keys.WISH_WORD}bob.1")
    assert len(secret(1)) == 1, "the router has seen it"
    assert running.status().state == "running"
    assert cluster.readie("cancel", running.id, user="admin").returncode == 0, "an administrator may"
    with pytest.raises(readie.CallCancelledError):
        running.result(SECONDS)


def message(call_id: str, **fields: Any) -> str:
    """Return what somebody with a signing key can put on the submit queue."""
    payload = dump_call(lambda: "Bob's function", (), {})
    header = CallHeader(
        protocol=1,
        id=call_id,
        name="f",
        python=PYTHON,
        payload_bytes=len(payload),
        payload_by_reference=False,
        **fields,
    )
    return task.encode(Keyring(KEYS).sign_call(header, [payload]), task.encode_body(payload), "test")


def test_a_client_can_not_put_its_function_in_the_place_of_another(bob: Redis, admin: Redis) -> None:
    running = [never_ends.spawn() for _ in range(4)]
    eventually(lambda: all(call.status().state == "running" for call in running), "all slots are taken")
    call = secret.spawn(1)
    eventually(lambda: call.status().detail, "it waits")
    before = forged(admin)
    bob.lpush(keys.SUBMIT_QUEUE, message(call.id))
    eventually(lambda: forged(admin) == before + 1, "the router finds that it is not what Alice submitted")
    assert call.status().state == "queued"
    for one in running:
        one.cancel()
    assert call.result(SECONDS) == b"s"


def test_a_session_is_its_owners_alone(cluster: ShutCluster, bob: Redis) -> None:
    with readie.session(id="shared-name") as session:
        assert remember.options(session=session)("alice's") == ""
        use = SessionUse(id="alice.shared-name", idle_ttl_seconds=60)
        Ledger(bob).submit("bob.1", message("bob.1", session=use, options=CallOptions()), "nobody")
        readie.configure(redis_url=cluster.url_of("bob"), signing_keys=KEYS)
        with pytest.raises(InvalidRequestError, match="of another user"):
            readie.get_call("bob.1").result(SECONDS)
        with pytest.raises(SessionExpiredError):
            remember.options(session=readie.get_session("shared-name"))("bob's")
        with readie.session(id="shared-name") as his:
            assert remember.options(session=his)("bob's") == ""
        readie.configure(redis_url=cluster.url_of("alice"), signing_keys=KEYS)
        assert remember.options(session=session)("again") == "alice's"


def test_an_end_is_told_to_clients_of_its_owner_alone(bob: Redis, admin: Redis) -> None:
    """What stands in Bob's record, where he can write anything, reaches no client of Alice's as if it were hers."""
    with admin.pubsub() as heard:
        heard.subscribe(keys.replies("alice.a"), keys.replies("bob.b"))
        # In this order they would be told.
        Ledger(bob).submit("bob.2", message("bob.2"), "alice.a bob.b")
        told = eventually(
            lambda: (word := heard.get_message(timeout=1)) and word["type"] == "message" and word, "an end is told"
        )
    assert told["channel"].decode() == keys.replies("bob.b")


DENIED = {
    "alice": [
        *(("FLUSHALL",), ("CONFIG", "GET", "*"), ("KEYS", "*"), ("SCAN", 0), ("MONITOR",), ("ACL", "LIST")),
        *(("CLIENT", "LIST"), ("CLIENT", "TRACKING", "ON", "BCAST"), ("PUBSUB", "CHANNELS"), ("SCRIPT", "FLUSH")),
        *(("LRANGE", keys.SUBMIT_QUEUE, 0, -1), ("RPOP", keys.SUBMIT_QUEUE), ("DEL", keys.SUBMIT_QUEUE)),
        *(("ZRANGE", keys.PENDING, 0, -1), ("ZREM", keys.PENDING, "x"), ("ZRANGE", keys.WAITING, 0, -1)),
        *(("HGETALL", keys.worker("w@h")), ("LPUSH", keys.worker_queue("w@h"), "x"), ("ZRANGE", keys.SESSIONS, 0, -1)),
        *(("LPUSH", keys.session_queue("s"), "x"), ("LRANGE", keys.router_taken("r"), 0, -1)),
        *(("PUBLISH", keys.worker_control("i"), "x"), ("LRANGE", keys.DEAD_LETTERS, 0, -1)),
    ],
    "router": [
        *(("FLUSHALL",), ("CONFIG", "SET", "dir", "/"), ("KEYS", "*"), ("ACL", "LIST"), ("SCAN", 0)),
        *(("GET", keys.payload("alice.1")), ("GET", keys.result("alice.1")), ("GET", f"{keys.PREFIX}value:alice.1:1")),
        *(("XRANGE", keys.output("alice.1"), "-", "+"), ("XRANGE", keys.values("alice.1"), "-", "+")),
    ],
    "worker": [
        *(("FLUSHALL",), ("CONFIG", "SET", "dir", "/"), ("KEYS", "*"), ("ACL", "LIST"), ("SCAN", 0)),
        *(("GET", keys.result("alice.1")), ("GET", f"{keys.PREFIX}value:alice.1:1")),
        *(("LRANGE", keys.router_taken("r"), 0, -1), ("LPUSH", keys.explanation("alice.1"), "x")),
        ("LRANGE", keys.DEAD_LETTERS, 0, -1),
    ],
    "flower": [
        *(("FLUSHALL",), ("KEYS", "*"), ("HGETALL", keys.call("alice.1")), ("GET", keys.payload("alice.1"))),
        *(("GET", keys.result("alice.1")), ("LRANGE", keys.SUBMIT_QUEUE, 0, -1), ("LPUSH", keys.SUBMIT_QUEUE, "x")),
    ],
    "observer": [
        *(("FLUSHALL",), ("KEYS", "*"), ("SET", keys.CAPACITY, 1), ("DEL", keys.PENDING), ("ZREM", keys.PENDING, "x")),
        *(("HGETALL", keys.message("alice.1")), ("GET", keys.payload("alice.1")), ("GET", keys.result("alice.1"))),
        *(("GET", f"{keys.PREFIX}value:alice.1:1"), ("XRANGE", keys.output("alice.1"), "-", "+")),
        *(("XRANGE", keys.values("alice.1"), "-", "+"), ("LRANGE", keys.worker_queue("w@h"), 0, -1)),
        *(("LRANGE", keys.session_queue("s"), 0, -1), ("LRANGE", keys.router_taken("r"), 0, -1)),
        *(("HSET", keys.call("alice.1"), "state", "queued"), ("GET", "celery-task-meta-alice.1")),
        *(("LRANGE", keys.SUBMIT_QUEUE, 0, -1), ("LPUSH", keys.SUBMIT_QUEUE, "x"), ("LRANGE", keys.DEAD_LETTERS, 0, 1)),
        *(("EVAL", "return 1", 0), ("PUBLISH", keys.worker_control("i"), "x")),
    ],
}


def test_every_role_is_denied_what_it_does_not_need(cluster: ShutCluster) -> None:
    for role, commands in DENIED.items():
        with connect(cluster.url_of(role), name="test") as redis:
            for command in commands:
                assert denied(redis, *command), f"{role}: {command}"


def test_an_observer_sees_every_call_and_nothing_that_it_was_given_or_gave(cluster: ShutCluster) -> None:
    def fail(value: str) -> None:
        raise ValueError(value)

    running = never_ends.spawn()
    again = remote(retries=readie.Retries(1, delay=1000))(fail).spawn("a secret argument")
    eventually(lambda: "a secret argument" in again.status().detail, "it waits to be run again")
    failing = remote(fail).spawn("a secret argument")
    with pytest.raises(readie.RemoteError, match="a secret argument"):
        failing.result(SECONDS)
    eventually(lambda: running.status().state == "running", "it runs")
    with connect(cluster.url_of("observer"), name="test") as redis:
        fields: Any = [redis.hgetall(keys.call(call.id)) for call in (running, failing, again)]
        for name in redis.scan_iter(match="*", count=1000):
            assert b"secret" not in name
    assert all(fields)
    assert not any(word in str(fields) for word in ("secret", "gAS", "submitted'", "body"))
    for command in (
        ("calls",),
        ("calls", "--state", "running"),
        ("sessions",),
        ("checkpoints",),
        ("top",),
        ("status",),
    ):
        done = cluster.readie(*command, "--json")
        assert (done.returncode, done.stderr) == (0, ""), command
        if command[0] == "calls":
            assert running.id in [call["id"] for call in json.loads(done.stdout)]
    shown = json.loads(cluster.readie("calls", running.id, "--json").stdout)
    assert (shown["state"], shown["withheld"], shown["options"]) == ("running", True, None)
    assert shown["choice"]["reason"]
    shown = json.loads(cluster.readie("calls", failing.id, "--json").stdout)
    assert (shown["state"], shown["failure"], shown["report"]) == ("failed", None, None)
    assert "Not shown" in cluster.readie("calls", failing.id).stdout
    assert json.loads(cluster.readie("calls", failing.id, "--json", user="admin").stdout)["failure"]
    for command in (("dead-letters",), ("logs", running.id), ("cancel", running.id)):
        assert cluster.readie(*command).returncode not in {0, 2}, command
    assert running.status().state == "running"
    assert running.cancel()
    assert again.cancel()


def test_nobody_gets_in_without_a_password(cluster: ShutCluster) -> None:
    url = cluster.url_of("alice")
    nameless = url.replace(url[len("rediss://") : url.index("@") + 1], "")
    with pytest.raises(readie.ReadieError, match="does not let this user in"):
        readie.Client(redis_url=nameless, signing_keys=KEYS).get_call("x")


def test_the_file_has_no_password_and_is_the_owners_alone(cluster: ShutCluster) -> None:
    acl, passwords = cluster.folder / "users.acl", cluster.folder / "passwords.json"
    assert acl.stat().st_mode & 0o777 == passwords.stat().st_mode & 0o777 == 0o600
    known = json.loads(passwords.read_text())
    assert set(known) == {"alice", "bob", "router", "worker", "flower", "observer", "admin"}
    assert not any(password in acl.read_text() for password in known.values())
    assert "nopass" not in acl.read_text(), "Redis would serve no other machine"
    again = cluster.readie(
        "acl", "--client", "carol", "--write", str(acl.with_name("new")), "--passwords", str(passwords)
    )
    assert again.returncode == 0, again.stderr
    assert known.items() < json.loads(passwords.read_text()).items(), "passwords that are known stay"
    wrong = cluster.readie("acl", "--client", "a*", "--write", str(acl), "--passwords", str(passwords))
    assert wrong.returncode == 2
    assert "give up to 31 letters" in " ".join(wrong.stderr.split())
