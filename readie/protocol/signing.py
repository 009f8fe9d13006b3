"""Signatures on what passes through Redis, made and checked by all who share the keys (HMAC-SHA256).

Three things are signed: a call by its client, a placement by its router, and whatever a client will unpickle by the
worker that it comes from. Without keys nothing is signed and nothing is checked.
"""

import hashlib
import hmac
import json
import re
import time
from collections.abc import Iterable
from typing import Any, Final, Literal

from .call import CallHeader, CallSignature, Message, Placement
from .payload import Buffer

_KEY: Final = re.compile(r"(?P<id>[A-Za-z0-9_-]{1,28}):(?P<secret>\S{32,})")
_SEAL: Final = b"RDSV"
_KEY_ID_BYTES: Final = 28
_MAC_BYTES: Final = 32
SEAL_BYTES: Final = len(_SEAL) + _KEY_ID_BYTES + _MAC_BYTES
"""A multiple of what arrays are aligned to."""


class BadSignatureError(Exception):
    """A signature is missing, wrong or too old; the text says which, for people."""


class Keyring:
    """The keys of a cluster. The first signs, all verify, so that keys can be changed while everything runs.

    Args:
        text: ``id:secret`` pairs, separated by commas; a secret has 32 characters or more. Empty: no keys.

    Raises:
        ValueError: it is not that; the secrets are not in the message.
    """

    def __init__(self, text: str = "") -> None:
        self._keys: dict[str, bytes] = {}
        for number, pair in enumerate(filter(None, (part.strip() for part in text.split(","))), 1):
            found = _KEY.fullmatch(pair)
            if found is None or found["id"] in self._keys:
                what = "names the same key as one before" if found else "is not id:secret"
                raise ValueError(
                    f"key {number} {what}; signing keys are id:secret pairs separated by commas: an id has up to 28 "
                    "letters, digits, - and _, a secret 32 characters or more (`openssl rand -hex 32` makes one)"
                )
            self._keys[found["id"]] = found["secret"].encode()

    def __bool__(self) -> bool:
        return bool(self._keys)

    def sign_call(self, header: CallHeader, payload: Iterable[Buffer]) -> CallHeader:
        """Return a call's header with a signature that also covers its payload's pieces."""
        if not self._keys:
            return header
        key_id = next(iter(self._keys))
        unsigned = CallSignature(key=key_id, at=time.time(), payload=_digest(payload), mac="")
        mac = self._mac(key_id, _call_text(header, unsigned))
        return header.model_copy(update={"signature": unsigned.model_copy(update={"mac": mac.hex()})})

    def check_call(self, header: CallHeader, max_age_seconds: float) -> None:
        """Refuse a call that no client of this cluster has sent, or that one has sent too long ago.

        Raises:
            BadSignatureError: so it is.
        """
        if not self._keys:
            return
        signature = header.signature
        if signature is None:
            raise BadSignatureError("the call is not signed, and this cluster takes signed calls only")
        self._compare(
            signature.key, signature.mac, _call_text(header, signature.model_copy(update={"mac": ""})), "call"
        )
        age = time.time() - signature.at
        if abs(age) > max_age_seconds:
            raise BadSignatureError(
                f"the call was signed {age:.0f} s ago, more than the {max_age_seconds:g} s within which it may begin "
                "(READIE_SIGNATURE_SECONDS)"
            )

    def check_payload(self, header: CallHeader, payload: Buffer) -> None:
        """Refuse a payload that is not the one a checked header was signed with.

        Raises:
            BadSignatureError: so it is.
        """
        if self._keys and (header.signature is None or header.signature.payload != _digest([payload])):
            raise BadSignatureError("function and arguments are not those that the client has signed")

    def sign_placement(self, header: CallHeader) -> CallHeader:
        """Return the header with its placement signed."""
        placement = header.placement
        if not self._keys or placement is None:
            return header
        key_id = next(iter(self._keys))
        mac = self._mac(key_id, _placement_text(header, placement))
        signed = placement.model_copy(update={"signature": f"{key_id}:{mac.hex()}"})
        return header.model_copy(update={"placement": signed})

    def check_placement(self, header: CallHeader) -> None:
        """Refuse a placement that no router of this cluster has made.

        Raises:
            BadSignatureError: so it is.
        """
        placement = header.placement
        if not self._keys:
            return
        if placement is None or placement.signature is None:
            raise BadSignatureError("the call's placement is not signed by a router")
        key_id, _, mac = placement.signature.partition(":")
        unsigned = placement.model_copy(update={"signature": None})
        self._compare(key_id, mac, _placement_text(header, unsigned), "placement")

    def seal(self, call_id: str, part: str, value: Buffer) -> Buffer:
        """Return what a call's client will unpickle with a signature before it.

        Args:
            call_id: whose it is.
            part: what of the call it is, see :func:`result_part` and :func:`yielded_part`.
            value: a payload container.
        """
        if not self._keys or not len(value):
            return value
        key_id = next(iter(self._keys))
        mac = self._mac(key_id, _value_text(call_id, part, [value]))
        return b"".join((_SEAL, key_id.encode().ljust(_KEY_ID_BYTES, b"\0"), mac, value))

    def open(self, call_id: str, part: str, sealed: bytes | bytearray) -> bytes | bytearray:
        """Return what :meth:`seal` was given. A ``bytearray`` is changed and returned, not copied.

        Raises:
            BadSignatureError: no worker of this cluster has sealed it, or it has and there is no key here.
        """
        is_sealed = sealed.startswith(_SEAL)
        if not self._keys:
            if is_sealed:
                raise BadSignatureError("it is signed, and there is no key here to check that: set READIE_SIGNING_KEYS")
            return sealed
        if not is_sealed or len(sealed) < SEAL_BYTES:
            raise BadSignatureError("it is not signed")
        view = memoryview(sealed)
        key_id = bytes(view[len(_SEAL) : len(_SEAL) + _KEY_ID_BYTES]).rstrip(b"\0").decode("ascii", "replace")
        mac = bytes(view[SEAL_BYTES - _MAC_BYTES : SEAL_BYTES])
        text = _value_text(call_id, part, [view[SEAL_BYTES:]])
        view.release()
        self._compare(key_id, mac.hex(), text, "value")
        if isinstance(sealed, bytearray):
            del sealed[:SEAL_BYTES]
            return sealed
        return sealed[SEAL_BYTES:]

    def _mac(self, key_id: str, text: bytes) -> bytes:
        return hmac.digest(self._keys[key_id], text, "sha256")

    def _compare(self, key_id: str, mac: str, text: bytes, what: str) -> None:
        if key_id not in self._keys:
            raise BadSignatureError(f"the {what} is signed with the key {key_id!r}, which is not known here")
        # As bytes: text with other characters than ASCII can't be compared.
        if not hmac.compare_digest(self._mac(key_id, text).hex().encode(), mac.encode()):
            raise BadSignatureError(
                f"the {what}'s signature is wrong: it was changed, or signed with another key or by a newer release"
            )


def result_part(outcome: Literal["value", "error"]) -> str:
    """Name a call's result, or the exception in its place."""
    return f"result {outcome}"


def yielded_part(attempt: int, number: int) -> str:
    """Name a value that an attempt has yielded, counted from 1."""
    return f"yielded {attempt} {number}"


def _call_text(header: CallHeader, unsigned: CallSignature) -> bytes:
    return _text("call", header.model_copy(update={"placement": None, "signature": unsigned}))


def _placement_text(header: CallHeader, placement: Placement) -> bytes:
    return _text(f"placement {header.id} {header.signature.mac if header.signature else ''}", placement)


def _value_text(call_id: str, part: str, pieces: Iterable[Buffer]) -> bytes:
    return f"readie value {call_id} {part} {_digest(pieces)}".encode()


def _text(what: str, message: Message) -> bytes:
    """Return what is signed: the same bytes for the same content, however it was written when it travelled."""
    content: Any = message.model_dump(mode="json", exclude_defaults=True)
    return f"readie {what} {json.dumps(content, sort_keys=True, separators=(',', ':'))}".encode()


def _digest(pieces: Iterable[Buffer]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
