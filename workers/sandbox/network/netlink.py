"""Netlink: requests to the kernel's network, in one namespace each; and making and entering these namespaces."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

CREATE: Final = 0x600
"""Flags of a request that makes something which is not there yet."""
_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300
_ERROR, _DONE = 2, 3
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_NESTED = 0x8000
_RECEIVE_BYTES = 1 << 18
_ANSWER_SECONDS = 10.0
_CLONE_NEWNET = 0x4000_0000

_libc = ctypes.CDLL(None, use_errno=True)


def attribute(kind: int, value: bytes) -> bytes:
    """Return an attribute, padded to four bytes."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def nested(kind: int, *attributes: bytes) -> bytes:
    """Return an attribute that holds others."""
    return attribute(kind | _NESTED, b"".join(attributes))


def text(kind: int, value: str) -> bytes:
    """Return an attribute with a name."""
    return attribute(kind, value.encode() + b"\0")


def message(kind: int, body: bytes, flags: int = 0, *, acknowledge: bool = True) -> bytes:
    """Return a request; ``Netlink`` awaits an answer to it unless it is not to be acknowledged."""
    flags |= _REQUEST | (_ACK if acknowledge else 0)
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, 0, 0) + body


class Netlink:
    """A netlink socket in the namespace of the thread that makes it; one thread at a time may use it."""

    def __init__(self, protocol: int = socket.NETLINK_ROUTE, groups: int = 0) -> None:
        """Open it; ``groups`` are those whose notices it is to get."""
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        try:
            self._socket.bind((0, groups))
            self._socket.settimeout(_ANSWER_SECONDS)
        except BaseException:
            self._socket.close()
            raise

    def request(self, *messages: bytes) -> None:
        """Send requests in one go and return when the kernel has done all; ``OSError`` says which it refused."""
        awaited = sum(1 for each in messages if _HEADER.unpack_from(each)[2] & _ACK)
        self._socket.send(b"".join(messages))
        refused: OSError | None = None
        while awaited:
            for kind, body in _split(self._socket.recv(_RECEIVE_BYTES)):
                if kind == _ERROR:
                    awaited -= 1
                    refused = refused or _error(body)
        if refused is not None:
            raise refused

    def dump(self, kind: int, body: bytes) -> list[bytes]:
        """Return the bodies of all that the kernel lists in answer to a request."""
        size = _HEADER.size + len(body)
        self._socket.send(_HEADER.pack(size, kind, _REQUEST | _DUMP, 0, 0) + body)
        found: list[bytes] = []
        while True:
            for answered, content in _split(self._socket.recv(_RECEIVE_BYTES)):
                if answered == _DONE:
                    return found
                if answered == _ERROR:
                    raise _error(content) or OSError("the kernel listed nothing")
                found.append(content)

    def wait_for_notice(self, stop: socket.socket, timeout: float) -> bool:
        """Wait for a notice, ``timeout`` seconds at most; return whether ``stop`` became readable meanwhile."""
        readable, _, _ = select.select([self._socket, stop], [], [], timeout)
        if self._socket in readable:
            with contextlib.suppress(OSError):  # more notices than there was room for
                self._socket.recv(_RECEIVE_BYTES)
        return stop in readable

    def close(self) -> None:
        """Close it."""
        self._socket.close()


def attributes(body: bytes, offset: int) -> dict[int, bytes]:
    """Return the attributes that follow a body's first ``offset`` bytes."""
    found = {}
    while offset + _ATTRIBUTE.size <= len(body):
        size, kind = _ATTRIBUTE.unpack_from(body, offset)
        if size < _ATTRIBUTE.size:
            break
        found[kind & ~_NESTED] = body[offset + _ATTRIBUTE.size : offset + size]
        offset += size + -size % 4
    return found


def new_namespace() -> int:
    """Return a descriptor of a new network namespace; it ends when this and all that runs in it has ended."""

    def make() -> int:
        _check(_libc.unshare(_CLONE_NEWNET))
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    return _in_thread(make)


def inside(namespace: int, action: Callable[[], T]) -> T:
    """Return what ``action`` returns in a thread that is in a namespace; sockets that it opens stay there."""

    def enter() -> T:
        _check(_libc.setns(namespace, _CLONE_NEWNET))
        return action()

    return _in_thread(enter)


def _in_thread(action: Callable[[], T]) -> T:
    # A thread of its own, because the kernel moves single threads, and one that failed to come back would be lost.
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(action())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="in-network-namespace")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _check(status: int) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"network namespaces can't be used: {os.strerror(number)}")


def _split(data: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset + _HEADER.size <= len(data):
        size, kind, *_ = _HEADER.unpack_from(data, offset)
        if size < _HEADER.size:
            return
        yield kind, data[offset + _HEADER.size : offset + size]
        offset += size + -size % 4


def _error(body: bytes) -> OSError | None:
    (number,) = struct.unpack_from("=i", body)
    return (
        None if number == 0 else OSError(-number, f"the kernel refused a change of its network: {os.strerror(-number)}")
    )
