"""Container for pickles whose large buffers travel beside them instead of inside (pickle protocol 5).

One container carries a call's function and arguments, or a result. It is passed on unread by router and worker: only
the client and the executor unpickle what it holds. Layout, little-endian, every item padded with zeros to 16 bytes::

    4s magic "RDPK" | u8 version | 3 zeros | u32 pickles | u32 buffers of all pickles
    u64 data length | u32 buffers | 4 zeros                     once per pickle
    u64 buffer length                                           once per buffer, in order
    data, then its buffers                                      once per pickle

The alignment lets numpy use a received buffer where it lies. Standard library only: the executor imports this module.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Buffer = bytes | bytearray | memoryview

MAGIC = b"RDPK"
VERSION = 1
ALIGNMENT = 16

_HEADER = struct.Struct("<4sB3sII")
_PICKLE = struct.Struct("<QI4s")
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Pickled:
    """One pickle: its byte stream and, in the order ``buffer_callback`` got them, its out-of-band buffers."""

    data: Buffer
    buffers: Sequence[Buffer] = ()


def encode(pickles: Sequence[Pickled]) -> list[Buffer]:
    """Return the pieces of a container holding ``pickles``; data and buffers are referred to, not copied.

    Join the pieces or hand them to ``socket.sendmsg``. Buffers must be C-contiguous (``PickleBuffer.raw()`` is), else
    ``ValueError``.
    """
    views = [(_flat(pickled.data), [_flat(buffer) for buffer in pickled.buffers]) for pickled in pickles]
    table = bytearray(_HEADER.pack(MAGIC, VERSION, bytes(3), len(views), sum(len(buffers) for _, buffers in views)))
    for data, buffers in views:
        table += _PICKLE.pack(len(data), len(buffers), bytes(4))
    for _, buffers in views:
        for buffer in buffers:
            table += _LENGTH.pack(len(buffer))
    table += bytes(_padding(len(table)))
    pieces: list[Buffer] = [bytes(table)]
    for data, buffers in views:
        for item in (data, *buffers):
            pieces.append(item)
            if padding := _padding(len(item)):
                pieces.append(bytes(padding))
    return pieces


def decode(container: Buffer) -> list[Pickled]:
    """Return the pickles of ``container`` as slices of it, without copies.

    Raises ``ValueError`` that says what is wrong when it is not a whole, well-formed container.
    """
    reader = _Reader(_flat(container))
    magic, version, zeros, pickle_count, buffer_count = _HEADER.unpack(reader.take(_HEADER.size, "header"))
    if magic != MAGIC:
        raise ValueError(f"not a payload container: it begins with {magic!r} instead of {MAGIC!r}")
    if version != VERSION:
        raise ValueError(f"payload container version {version} is not supported (this is version {VERSION})")
    _check_zeros(zeros, "header")
    # Counts are compared with what is there before anything is allocated for them.
    if pickle_count * _PICKLE.size + buffer_count * _LENGTH.size > reader.remaining:
        raise ValueError(f"payload container is too short for {pickle_count} pickles and {buffer_count} buffers")
    pickles = []
    for _ in range(pickle_count):
        data_length, buffers, zeros = _PICKLE.unpack(reader.take(_PICKLE.size, "pickle table"))
        _check_zeros(zeros, "pickle table")
        pickles.append((data_length, buffers))
    if sum(buffers for _, buffers in pickles) != buffer_count:
        raise ValueError("payload container is inconsistent: the pickles' buffer counts do not add up to the header's")
    lengths = [_LENGTH.unpack(reader.take(_LENGTH.size, "buffer table"))[0] for _ in range(buffer_count)]
    reader.skip_padding()
    decoded = []
    remaining_lengths = iter(lengths)
    for data_length, buffers in pickles:
        data = reader.take_padded(data_length, "pickle")
        decoded.append(
            Pickled(data, [reader.take_padded(next(remaining_lengths), "buffer") for _ in range(buffers)]),
        )
    if reader.remaining:
        raise ValueError(f"payload container is followed by {reader.remaining} bytes that do not belong to it")
    return decoded


def total_size(pieces: Iterable[Buffer]) -> int:
    """Return how many bytes the joined ``pieces`` have."""
    return sum(memoryview(piece).nbytes for piece in pieces)


class _Reader:
    """A position in a container that never passes its end."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._position = 0

    @property
    def remaining(self) -> int:
        return len(self._view) - self._position

    def take(self, length: int, what: str) -> memoryview:
        if length > self.remaining:
            raise ValueError(f"payload container ends inside a {what}: {length} bytes wanted, {self.remaining} left")
        start = self._position
        self._position += length
        return self._view[start : self._position]

    def take_padded(self, length: int, what: str) -> memoryview:
        taken = self.take(length, what)
        self.skip_padding()
        return taken

    def skip_padding(self) -> None:
        _check_zeros(self.take(_padding(self._position), "padding"), "padding")


def _flat(buffer: Buffer) -> memoryview:
    view = memoryview(buffer)
    if not view.c_contiguous:
        raise ValueError("a pickle's buffers must be C-contiguous; pass PickleBuffer.raw()")
    return view.cast("B")


def _padding(length: int) -> int:
    return -length % ALIGNMENT


def _check_zeros(field: Buffer, what: str) -> None:
    if any(field):
        raise ValueError(f"payload container has non-zero reserved bytes in its {what}")
