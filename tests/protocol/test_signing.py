"""What is signed can't be changed, by whoever can write to Redis."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from readie.protocol import signing, task
from readie.protocol.call import CallHeader, CallOptions, ImportHints, Placement, RetryPolicy, SessionUse
from readie.protocol.explain import ExplainRequest
from readie.protocol.reading import UnreadableError, read_placed, read_signed
from readie.protocol.signing import SEAL_BYTES, BadSignatureError, Keyring, result_part, yielded_part
from readie.settings import Settings

OLD, NEW = "2025:" + "o" * 32, "2026:" + "n" * 32
KEYS = Keyring(OLD)
PAYLOAD = [b"function ", b"and arguments"]
HEADER = CallHeader(
    protocol=1,
    id="c1",
    name="f",
    python="3.11",
    hints=ImportHints(imports=("numpy",)),
    options=CallOptions(timeout_seconds=5, memory_bytes=1 << 30, retries=RetryPolicy(times=1, after=("E",))),
    session=SessionUse(id="s1", idle_ttl_seconds=300),
    client="alice",
    payload_bytes=22,
    payload_by_reference=True,
)
PLACEMENT = Placement(
    worker="w@h", incarnation="i", attempt=1, checkpoint_id="checkpoint_1", reason="r", predicted_seconds=0.1
)


def leaves(content: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(content, dict):
        for name, value in content.items():
            yield from leaves(value, (*path, name))
    elif isinstance(content, list):
        for index, value in enumerate(content):
            yield from leaves(value, (*path, index))
    else:
        yield path


def changed(content: Any, path: tuple[str | int, ...]) -> Any:
    """Return a copy with another value at ``path``, of the same type."""
    copy = json.loads(json.dumps(content))
    holder = copy
    for part in path[:-1]:
        holder = holder[part]
    value = holder[path[-1]]
    if isinstance(value, bool):
        holder[path[-1]] = not value
    elif isinstance(value, int | float):
        holder[path[-1]] = value + 1
    else:
        # Of the digits, so that patterns and lengths still fit.
        holder[path[-1]] = ("2" if value[0] != "2" else "3") + value[1:]
    return copy


def item(content: dict[str, Any]) -> bytes:
    message = json.loads(task.encode(HEADER, task.encode_body(None), "test"))
    message["headers"] |= {task.HEADER: content, "id": content["id"]}
    return json.dumps(message).encode()


def signed() -> CallHeader:
    placed = KEYS.sign_call(HEADER, PAYLOAD).model_copy(update={"placement": PLACEMENT})
    return KEYS.sign_placement(placed)


def test_a_change_of_any_field_is_refused() -> None:
    content = signed().model_dump(mode="json", exclude_defaults=True)
    assert read_placed(item(content), KEYS, 60)[1] == CallHeader.model_validate(content)
    paths = [path for path in leaves(content) if path != ("protocol",)]
    assert {("id",), ("name",), ("options", "memory_bytes"), ("session", "id"), ("signature", "payload")} < set(paths)
    assert ("placement", "incarnation") in paths
    for path in paths:
        forged = changed(content, path)
        with pytest.raises(UnreadableError) as caught:
            read_placed(item(forged), KEYS, 60)
        assert caught.value.forged, f"{path}: {caught.value}"
        assert caught.value.call_id == forged["id"]


def test_what_is_added_or_left_out_is_refused() -> None:
    content = signed().model_dump(mode="json", exclude_defaults=True)
    for forged in (
        {**content, "streams": True},
        {**content, "options": {**content["options"], "gpu": True}},
        {name: value for name, value in content.items() if name != "session"},
        {name: value for name, value in content.items() if name != "signature"},
        {name: value for name, value in content.items() if name != "placement"},
    ):
        with pytest.raises(UnreadableError) as caught:
            read_placed(item(forged), KEYS, 60)
        assert caught.value.forged


def test_a_question_must_be_signed_too() -> None:
    for header, refused in ((HEADER, True), (KEYS.sign_call(HEADER, ()), False)):
        question = ExplainRequest(task="readie.explain", id="q", header=header).model_dump_json(exclude_none=True)
        if refused:
            with pytest.raises(UnreadableError, match="not signed") as caught:
                read_signed(question.encode(), KEYS, 60)
            assert caught.value.question_id == "q"
        else:
            read_signed(question.encode(), KEYS, 60)


def test_another_payload_is_refused() -> None:
    KEYS.check_payload(signed(), b"".join(PAYLOAD))
    with pytest.raises(BadSignatureError, match="not those that the client has signed"):
        KEYS.check_payload(signed(), b"function and others")


def test_a_placement_fits_its_own_call_alone() -> None:
    other = KEYS.sign_call(HEADER.model_copy(update={"name": "other"}), PAYLOAD)
    with pytest.raises(BadSignatureError, match="placement's signature is wrong"):
        KEYS.check_placement(other.model_copy(update={"placement": signed().placement}))


def test_a_call_can_be_sent_again_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    header = signed()
    KEYS.check_call(header, 60)
    now = signing.time.time()
    for age in (61, -61):
        monkeypatch.setattr(signing.time, "time", lambda age=age: now + age)
        with pytest.raises(BadSignatureError, match=f"signed {age} s ago.*READIE_SIGNATURE_SECONDS"):
            KEYS.check_call(header, 60)


def test_keys_are_changed_in_three_steps_without_a_refusal() -> None:
    """Every process may be one step ahead of another: all know the new key before the first signs with it."""
    steps = [Keyring(OLD), Keyring(f"{OLD},{NEW}"), Keyring(f"{NEW}, {OLD}"), Keyring(NEW)]
    for one, next_one in itertools.pairwise(steps):
        for signs, checks in ((one, next_one), (next_one, one)):
            signs_call = signs.sign_call(HEADER, PAYLOAD)
            placed = signs.sign_placement(signs_call.model_copy(update={"placement": PLACEMENT}))
            checks.check_call(placed, 60)
            checks.check_placement(placed)
            assert checks.open("c1", "p", bytes(signs.seal("c1", "p", b"value"))) == b"value"
    with pytest.raises(BadSignatureError, match="the key '2025', which is not known here"):
        steps[3].check_call(steps[0].sign_call(HEADER, PAYLOAD), 60)


def test_a_value_is_opened_only_as_what_it_was_sealed() -> None:
    part = result_part("value")
    sealed = bytes(KEYS.seal("c1", part, b"x" * 100))
    assert KEYS.open("c1", part, sealed) == b"x" * 100
    assert KEYS.open("c1", part, bytearray(sealed)) == b"x" * 100
    assert SEAL_BYTES % 16 == 0, "arrays in it stay aligned"
    for call_id, other in (("c2", part), ("c1", result_part("error")), ("c1", yielded_part(1, 1))):
        with pytest.raises(BadSignatureError):
            KEYS.open(call_id, other, sealed)
    for position in range(len(sealed)):
        wrong = bytearray(sealed)
        wrong[position] ^= 1
        with pytest.raises(BadSignatureError):
            KEYS.open("c1", part, wrong)
    for short in (b"", b"x", sealed[:10], sealed[: SEAL_BYTES - 1]):
        with pytest.raises(BadSignatureError):
            KEYS.open("c1", part, short)


def test_without_keys_nothing_changes() -> None:
    nobody = Keyring()
    assert nobody.sign_call(HEADER, PAYLOAD) is HEADER
    assert nobody.seal("c1", "p", b"value") == nobody.open("c1", "p", b"value") == b"value"
    nobody.check_call(HEADER, 0)
    nobody.check_payload(HEADER, b"any")
    nobody.check_placement(HEADER)
    with pytest.raises(BadSignatureError, match="set READIE_SIGNING_KEYS"):
        nobody.open("c1", "p", bytes(KEYS.seal("c1", "p", b"value")))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("secret", "key 1 is not id:secret"),
        (f"{OLD},2026:too-short", "key 2 is not id:secret"),
        (f"{OLD},{OLD}", "key 2 names the same key"),
        ("an id:" + "s" * 32, "key 1 is not id:secret"),
    ],
)
def test_wrong_keys_are_refused_without_showing_them(text: str, what: str) -> None:
    with pytest.raises(ValidationError, match=what) as caught:
        Settings(signing_keys=text)
    assert text.partition(":")[2][-8:] not in str(caught.value) or ":" not in text
    assert "o" * 32 not in str(caught.value)
    assert "o" * 32 not in repr(Settings(signing_keys=OLD))
