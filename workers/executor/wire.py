"""Frames between worker and executor on a unix stream socket.

A frame is a ``>IB`` header (payload length, kind) and its payload. Kinds below 16 go to the executor, the others come
from it. JSON payloads are objects in which an unknown key is ignored, so a field can be added without a new version::

    executor → worker   HELLO   {"wire", "python", "start", "imported", "repair_seconds"}       once, first
    worker → executor   CALL    {"id", "name", "session", "address_space_bytes" where it is to be bounded,
                                 "layer" where it has packages of its own,
                                 "credit" where its values are wanted while it runs}            then PAYLOAD
    worker → executor   PAYLOAD container of [function, (args, kwargs), what goes with them: readie.protocol.context]
    worker → executor   CREDIT  {"values", "bytes", "stop"}  how many values the call may have sent, in all, before the
                                next (and how many bytes), or that no more are wanted; may be late: to be ignored then
    executor → worker   YIELD   container of [value], as often as there is credit, before RESULT
    executor → worker   RESULT  {"outcome", "load_seconds", "execute_seconds", "dump_seconds", "error",
                                 "ignored_globals" and "at_rest" in a session}                   then VALUE
    executor → worker   VALUE   container of [value or exception, package versions]; empty when it can not be pickled
"""

from __future__ import annotations

import enum
import json
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from readie.protocol.payload import Buffer, total_size

WIRE_VERSION = 3

MAX_FRAME_BYTES = 2**32 - 1
MAX_JSON_BYTES = 4 << 20

_HEADER = struct.Struct(">IB")
_MAX_PIECES_PER_SEND = 1024
"""Linux takes at most IOV_MAX pieces in one ``sendmsg``."""
_MAX_SOCKET_TIMEOUT_SECONDS = 2_000_000.0
"""A socket's timeout must fit into 31 bits of milliseconds."""


class Kind(enum.IntEnum):
    """What a frame's payload is."""

    CALL = 1
    PAYLOAD = 2
    CREDIT = 3
    HELLO = 16
    RESULT = 17
    VALUE = 18
    YIELD = 19


_JSON = frozenset({Kind.CALL, Kind.CREDIT, Kind.HELLO, Kind.RESULT})


class WireError(Exception):
    """The other side sent something that is not a valid frame, or not one that may come now."""


class FrameTooLargeError(WireError):
    """A frame is larger than the reader takes (or than a frame can be)."""

    def __init__(self, size_bytes: int, limit_bytes: int, kind: str) -> None:
        super().__init__(f"a {kind} frame of {size_bytes} bytes is above the limit of {limit_bytes} bytes")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        self.kind = kind


class ConnectionEndedError(Exception):
    """The other side closed the connection between two frames."""


@dataclass(frozen=True)
class Frame:
    """One received frame."""

    kind: Kind
    payload: bytearray


def send_frame(
    connection: socket.socket,
    kind: Kind,
    pieces: Sequence[Buffer],
    *,
    deadline: float | None = None,
) -> None:
    """Send one frame whose payload is the joined ``pieces``, without joining them.

    ``deadline`` is a ``time.monotonic()`` value; ``TimeoutError`` when it passes, and the connection is then of no
    more use. ``OSError`` when the other side is gone, ``FrameTooLargeError`` before anything was sent.
    """
    _send_all(connection, _frame(kind, pieces), deadline)


def send_json_and_frame(
    connection: socket.socket,
    head: tuple[Kind, Mapping[str, object]],
    body: tuple[Kind, Sequence[Buffer]],
    *,
    deadline: float | None = None,
) -> None:
    """Send two frames that belong together at once, so that the other side wakes up once; see ``send_frame``."""
    kind, message = head
    text = json.dumps(message, separators=(",", ":")).encode()
    _send_all(connection, [*_frame(kind, [text]), *_frame(*body)], deadline)


def _frame(kind: Kind, pieces: Sequence[Buffer]) -> list[memoryview]:
    size = total_size(pieces)
    if size > MAX_FRAME_BYTES:
        raise FrameTooLargeError(size, MAX_FRAME_BYTES, kind.name)
    return [memoryview(_HEADER.pack(size, kind)), *(memoryview(piece).cast("B") for piece in pieces)]


def _send_all(connection: socket.socket, pending: list[memoryview], deadline: float | None) -> None:
    first = 0
    while first < len(pending):
        _set_timeout(connection, deadline)
        sent = connection.sendmsg(pending[first : first + _MAX_PIECES_PER_SEND])
        while first < len(pending) and sent >= len(pending[first]):
            sent -= len(pending[first])
            first += 1
        if sent:
            pending[first] = pending[first][sent:]


def send_json(
    connection: socket.socket,
    kind: Kind,
    message: Mapping[str, object],
    *,
    deadline: float | None = None,
) -> None:
    """Send one frame whose payload is ``message`` as JSON; see ``send_frame``."""
    send_frame(connection, kind, [json.dumps(message, separators=(",", ":")).encode()], deadline=deadline)


def read_frame(
    connection: socket.socket,
    *expected: Kind,
    max_bytes: int,
    deadline: float | None = None,
) -> Frame:
    """Read the next frame, which must be of one of the ``expected`` kinds and have at most ``max_bytes`` of payload.

    JSON has ``MAX_JSON_BYTES`` at most in any case.

    The size is checked before memory is taken for it. ``deadline`` is a ``time.monotonic()`` value. Raises
    ``ConnectionEndedError`` when the other side closed before the frame, ``WireError`` when it closed inside it or
    sent something else, ``FrameTooLargeError``, ``TimeoutError`` when the deadline passes, and other ``OSError``.
    """
    due = " or ".join(kind.name for kind in expected)
    header = bytearray(_HEADER.size)
    received = _receive_into(connection, header, deadline)
    if received == 0:
        raise ConnectionEndedError(f"the connection was closed before a {due} frame")
    if received < _HEADER.size:
        raise WireError(f"the connection was closed inside a frame's header ({received} of {_HEADER.size} bytes)")
    size, kind_number = _HEADER.unpack(header)
    if kind_number not in expected:
        raise WireError(f"a frame of kind {kind_number} came where {due} is due")
    kind = Kind(kind_number)
    limit = min(max_bytes, MAX_JSON_BYTES) if kind in _JSON else max_bytes
    if size > limit:
        raise FrameTooLargeError(size, limit, kind.name)
    payload = bytearray(size)
    received = _receive_into(connection, payload, deadline)
    if received < size:
        raise WireError(f"the connection was closed inside a {kind.name} frame ({received} of {size} bytes)")
    return Frame(kind, payload)


def read_json(
    connection: socket.socket,
    expected: Kind,
    *,
    max_bytes: int = MAX_JSON_BYTES,
    deadline: float | None = None,
) -> dict[str, object]:
    """Read the next frame as ``read_frame`` does and return its JSON object; ``WireError`` when it is not one."""
    return json_object(read_frame(connection, expected, max_bytes=max_bytes, deadline=deadline))


def json_object(frame: Frame) -> dict[str, object]:
    """Return the JSON object that is a frame's payload; ``WireError`` when it is not one."""
    try:
        message = json.loads(frame.payload)
    except (ValueError, RecursionError) as error:
        raise WireError(f"a {frame.kind.name} frame is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise WireError(f"a {frame.kind.name} frame is not a JSON object but a {type(message).__name__}")
    return message


def _receive_into(connection: socket.socket, buffer: bytearray, deadline: float | None) -> int:
    view = memoryview(buffer)
    received = 0
    while received < len(view):
        _set_timeout(connection, deadline)
        count = connection.recv_into(view[received:])
        if count == 0:
            break
        received += count
    return received


def _set_timeout(connection: socket.socket, deadline: float | None) -> None:
    if deadline is None:
        # Setting it costs a system call, even to what it is.
        if connection.gettimeout() is not None:
            connection.settimeout(None)
        return
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError("the deadline passed")
    connection.settimeout(min(remaining, _MAX_SOCKET_TIMEOUT_SECONDS))
