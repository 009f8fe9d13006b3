import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from workers.executor import wire
from workers.executor.wire import ConnectionEndedError, FrameTooLargeError, Kind, WireError


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    with left, right:
        yield left, right


def test_golden_frames(ends: tuple[socket.socket, socket.socket]) -> None:
    """These bytes are what executors in existing checkpoints send and read: a change needs a new wire version."""
    left, right = ends
    assert wire.WIRE_VERSION == 3

    hello = {"wire": 3, "python": "3.11.7", "start": "restored", "imported": ["numpy"], "repair_seconds": 0.25}
    wire.send_json(left, Kind.HELLO, hello)
    assert right.recv(1000) == (
        b"\x00\x00\x00\x5a\x10"
        b'{"wire":3,"python":"3.11.7","start":"restored","imported":["numpy"],"repair_seconds":0.25}'
    )

    wire.send_json(left, Kind.CALL, {"id": "c1", "name": "mean"})
    assert right.recv(1000) == b'\x00\x00\x00\x19\x01{"id":"c1","name":"mean"}'

    wire.send_frame(left, Kind.PAYLOAD, [b"RDPK", bytearray(b"xy"), memoryview(b"z")])
    assert right.recv(1000) == b"\x00\x00\x00\x07\x02RDPKxyz"

    result = {"outcome": "ok", "load_seconds": 0.5, "execute_seconds": 1.0, "dump_seconds": 0.0, "error": None}
    wire.send_json(left, Kind.RESULT, result)
    assert right.recv(1000) == (
        b'\x00\x00\x00\x59\x11{"outcome":"ok","load_seconds":0.5,"execute_seconds":1.0,"dump_seconds":0.0,"error":null}'
    )

    wire.send_frame(left, Kind.VALUE, [])
    assert right.recv(1000) == b"\x00\x00\x00\x00\x12"

    wire.send_json(left, Kind.CREDIT, {"values": 32, "bytes": 4096, "stop": False})
    assert right.recv(1000) == b'\x00\x00\x00\x27\x03{"values":32,"bytes":4096,"stop":false}'

    wire.send_frame(left, Kind.YIELD, [b"RDPK"])
    assert right.recv(1000) == b"\x00\x00\x00\x04\x13RDPK"


def test_a_large_frame_of_many_pieces_arrives_whole(ends: tuple[socket.socket, socket.socket]) -> None:
    left, right = ends
    pieces = [bytes([number % 256]) * 1500 for number in range(3000)]
    sender = threading.Thread(target=wire.send_frame, args=(left, Kind.PAYLOAD, pieces))
    sender.start()
    frame = wire.read_frame(right, Kind.PAYLOAD, max_bytes=10_000_000)
    sender.join()

    assert frame.payload == b"".join(pieces)


def test_a_frame_above_the_limit_is_refused_unread(ends: tuple[socket.socket, socket.socket]) -> None:
    left, right = ends
    left.sendall(struct.pack(">IB", 4_000_000_000, Kind.VALUE))

    with pytest.raises(FrameTooLargeError, match="VALUE frame of 4000000000 bytes is above the limit of 100") as caught:
        wire.read_frame(right, Kind.VALUE, max_bytes=100)
    assert (caught.value.size_bytes, caught.value.limit_bytes) == (4_000_000_000, 100)


def test_a_frame_of_another_kind_is_refused(ends: tuple[socket.socket, socket.socket]) -> None:
    left, right = ends
    wire.send_frame(left, Kind.VALUE, [b"x"])

    with pytest.raises(WireError, match=r"kind 18 came where RESULT is due"):
        wire.read_frame(right, Kind.RESULT, max_bytes=100)


def test_a_connection_closed_between_frames_is_told_from_one_closed_inside(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    left, right = ends
    left.sendall(b"\x00\x00\x00\x05\x12abc")
    left.close()

    with pytest.raises(WireError, match=r"inside a VALUE frame \(3 of 5 bytes\)"):
        wire.read_frame(right, Kind.VALUE, max_bytes=100)
    with pytest.raises(ConnectionEndedError):
        wire.read_frame(right, Kind.VALUE, max_bytes=100)


def test_a_connection_closed_inside_a_header_is_an_error(ends: tuple[socket.socket, socket.socket]) -> None:
    left, right = ends
    left.sendall(b"\x00\x00")
    left.close()

    with pytest.raises(WireError, match="2 of 5 bytes"):
        wire.read_frame(right, Kind.VALUE, max_bytes=100)


@pytest.mark.parametrize("text", [b"{", b"\xff\xfe", b"[1]", b"null", b"[" * 100_000])
def test_json_that_is_none_is_a_wire_error(ends: tuple[socket.socket, socket.socket], text: bytes) -> None:
    left, right = ends
    wire.send_frame(left, Kind.RESULT, [text])

    with pytest.raises(WireError, match="RESULT frame is not"):
        wire.read_json(right, Kind.RESULT)


def test_a_silent_sender_ends_in_a_timeout(ends: tuple[socket.socket, socket.socket]) -> None:
    left, right = ends
    left.sendall(b"\x00\x00\x00\x05\x12ab")

    with pytest.raises(TimeoutError):
        wire.read_frame(right, Kind.VALUE, max_bytes=100, deadline=time.monotonic() + 0.05)


def test_a_receiver_that_does_not_read_ends_in_a_timeout(ends: tuple[socket.socket, socket.socket]) -> None:
    left, _ = ends

    with pytest.raises(TimeoutError):
        wire.send_frame(left, Kind.PAYLOAD, [bytes(10_000_000)], deadline=time.monotonic() + 0.05)
