"""The way out of an installing sandbox: to the hosts of the package index, and to no other.

A SOCKS 5 proxy on a unix socket. Which hosts an index uses is learned while nothing but uv runs, that is before any
package's own code could: whatever uv asks for then is the index's. After ``hold`` none is added.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterable
from pathlib import Path

_CONNECT_SECONDS = 20.0
_IDLE_SECONDS = 120.0
_MOST_CONNECTIONS = 64
_CHUNK_BYTES = 1 << 16
_GREETED = b"\x05\x00"
_CONNECTED, _REFUSED, _FAILED = (b"\x05" + code + b"\x00\x01" + bytes(6) for code in (b"\x00", b"\x02", b"\x05"))
_CONNECT, _IPV4, _NAME, _IPV6 = 1, 1, 3, 4


class IndexProxy:
    """Serves one sandbox until ``close``. ``_services``, ``_holds`` and ``_connections`` are guarded by ``_lock``."""

    def __init__(self, path: Path, services: Iterable[tuple[str, int]]) -> None:
        """Listen on a socket at ``path``; ``services``, hosts and their ports, may be reached from the beginning."""
        self._lock = threading.Lock()
        self._services = set(services)
        self._holds = False
        self.refused: set[str] = set()
        """What was asked for in vain."""
        self._connections: set[socket.socket] = set()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        # The sandboxed user connects; nobody else can reach the folder.
        path.chmod(0o777)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, name="index-proxy", daemon=True)
        self._thread.start()

    def hold(self) -> None:
        """Let nothing be reached from now on that was not reached before."""
        with self._lock:
            self._holds = True

    def close(self) -> None:
        """End all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        with self._lock:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if len(self._connections) >= _MOST_CONNECTIONS:
                    connection.close()
                    continue
                self._connections.add(connection)
            threading.Thread(target=self._join, args=(connection,), name="index-connection", daemon=True).start()

    def _join(self, connection: socket.socket) -> None:
        try:
            with connection, contextlib.suppress(OSError, EOFError):
                connection.settimeout(_IDLE_SECONDS)
                host, port = _requested(connection)
                if not self._may_reach(host, port):
                    connection.sendall(_REFUSED)
                    return
                try:
                    upstream = socket.create_connection((host, port), _CONNECT_SECONDS)
                except OSError:
                    connection.sendall(_FAILED)
                    return
                with upstream:
                    connection.sendall(_CONNECTED)
                    _relay(connection, upstream)
        finally:
            with self._lock:
                self._connections.discard(connection)

    def _may_reach(self, host: str, port: int) -> bool:
        with self._lock:
            if not self._holds:
                self._services.add((host, port))
            allowed = (host, port) in self._services
            if not allowed and len(self.refused) < _MOST_CONNECTIONS:
                self.refused.add(f"{host}:{port}")
            return allowed


def _requested(connection: socket.socket) -> tuple[str, int]:
    version, methods = _read(connection, 2)
    _read(connection, methods)
    connection.sendall(_GREETED)
    version, command, _, kind = _read(connection, 4)
    if (version, command) != (5, _CONNECT):
        raise EOFError
    if kind == _NAME:
        host = _read(connection, _read(connection, 1)[0]).decode("ascii", "replace").lower()
    elif kind in (_IPV4, _IPV6):
        family, size = (socket.AF_INET, 4) if kind == _IPV4 else (socket.AF_INET6, 16)
        host = socket.inet_ntop(family, _read(connection, size))
    else:
        raise EOFError
    return host, int.from_bytes(_read(connection, 2))


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (more := connection.recv(size - len(data))):
            raise EOFError
        data += more
    return data


def _relay(one: socket.socket, other: socket.socket) -> None:
    """Pass on what comes from either side until one closes or both are silent."""
    peers = {one: other, other: one}
    while readable := select.select([one, other], [], [], _IDLE_SECONDS)[0]:
        for each in readable:
            if not (data := each.recv(_CHUNK_BYTES)):
                return
            peers[each].sendall(data)
