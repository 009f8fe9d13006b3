"""Name lookups of sandboxes: handed on, unread, to the name servers that the host itself uses."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path

_PORT = 53
_MOST_AT_ONCE = 128
_MOST_AT_ONCE_OF_ONE = 16
_ANSWER_SECONDS = 3.0
_IDLE_SECONDS = 5.0
_LARGEST_BYTES = 65_535
_RESOLVER_FILE = Path("/etc/resolv.conf")


class NameRelay:
    """Relays DNS over UDP and TCP, from sockets in the gateway to servers as the host sees them.

    What is asked is bounded in number, for each sandbox and in all; more is dropped, and asked again by whoever asked.
    ``_asking`` is guarded by ``_lock``.
    """

    def __init__(self, listening: tuple[socket.socket, socket.socket]) -> None:
        """Begin to relay what comes to these sockets of ``listen``."""
        self._udp, self._tcp = listening
        self._lock = threading.Lock()
        self._asking: Counter[str] = Counter()
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name="name-relay", daemon=True)
        self._thread.start()

    @staticmethod
    def listen(address: str) -> tuple[socket.socket, socket.socket]:
        """Open the sockets, UDP and TCP, in the namespace of the calling thread."""
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind((address, _PORT))
        tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        tcp.bind((address, _PORT))
        tcp.listen()
        return udp, tcp

    def close(self) -> None:
        """Stop."""
        self._wake.close()
        self._thread.join()
        for each in (self._udp, self._tcp, self._woken):
            each.close()

    def _serve(self) -> None:
        while True:
            readable, _, _ = select.select([self._udp, self._tcp, self._woken], [], [])
            if self._woken in readable:
                return
            with contextlib.suppress(OSError):
                if self._udp in readable:
                    question, client = self._udp.recvfrom(_LARGEST_BYTES)
                    self._begin(client[0], self._ask, question, client)
                if self._tcp in readable:
                    connection, client = self._tcp.accept()
                    if not self._begin(client[0], self._join, connection):
                        connection.close()

    def _begin(self, client: str, work: Callable[..., None], *arguments: object) -> bool:
        with self._lock:
            if self._asking.total() >= _MOST_AT_ONCE or self._asking[client] >= _MOST_AT_ONCE_OF_ONE:
                return False
            self._asking[client] += 1
        threading.Thread(target=self._do, args=(client, work, *arguments), name="name-lookup", daemon=True).start()
        return True

    def _do(self, client: str, work: Callable[..., None], *arguments: object) -> None:
        try:
            with contextlib.suppress(OSError):
                work(*arguments)
        finally:
            with self._lock:
                self._asking[client] -= 1
                if not self._asking[client]:
                    del self._asking[client]

    def _ask(self, question: bytes, client: tuple[str, int]) -> None:
        for server in _servers():
            with contextlib.suppress(OSError), _socket_to(server, socket.SOCK_DGRAM) as upstream:
                upstream.settimeout(_ANSWER_SECONDS)
                # Connected, on a port of its own: the kernel takes answers of that server alone.
                upstream.connect((server, _PORT))
                upstream.send(question)
                answer = upstream.recv(_LARGEST_BYTES)
                if answer[:2] == question[:2]:
                    self._udp.sendto(answer, client)
                    return

    def _join(self, connection: socket.socket) -> None:
        with connection:
            for server in _servers():
                with contextlib.suppress(OSError), _socket_to(server, socket.SOCK_STREAM) as upstream:
                    upstream.settimeout(_ANSWER_SECONDS)
                    upstream.connect((server, _PORT))
                    _relay(connection, upstream)
                    return


def _relay(one: socket.socket, other: socket.socket) -> None:
    """Pass on what comes from either side until one closes or both are silent."""
    peers = {one: other, other: one}
    while readable := select.select([one, other], [], [], _IDLE_SECONDS)[0]:
        for each in readable:
            if not (data := each.recv(_LARGEST_BYTES)):
                return
            peers[each].sendall(data)


def _socket_to(server: str, kind: socket.SocketKind) -> socket.socket:
    return socket.socket(socket.AF_INET if ip_address(server.partition("%")[0]).version == 4 else socket.AF_INET6, kind)


def _servers() -> Iterator[str]:
    # Read each time: it changes when the host's network does.
    for line in _RESOLVER_FILE.read_text(errors="replace").splitlines():
        match line.split():
            case ["nameserver", address, *_]:
                yield address
