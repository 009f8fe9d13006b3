"""A TCP proxy before Redis whose connections can be broken in the middle of what they carry, or fall silent."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self


class _Link:
    """One connection, both ways. ``_bytes_left`` and ``_ended_pumps`` are guarded by ``_lock``."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near = near
        self.far = far
        self.sent = b""
        """The beginning of what was last sent to Redis."""
        self.silent = False
        self._bytes_left: int | None = None
        self._ended_pumps = 0
        self._lock = threading.Lock()
        for source, sink, to_redis in ((near, far, True), (far, near, False)):
            threading.Thread(target=self._pump, args=(source, sink, to_redis), daemon=True).start()

    def cut(self, after_bytes: int) -> None:
        """Break the connection once it has carried some more bytes to Redis."""
        with self._lock:
            self._bytes_left = after_bytes
        if not after_bytes:
            self.close()

    def close(self) -> None:
        for end in (self.near, self.far):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _pump(self, source: socket.socket, sink: socket.socket, to_redis: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if to_redis:
                    self.sent = data[:100]
                    with self._lock:
                        left = self._bytes_left
                        if left is not None:
                            self._bytes_left = left - len(data)
                    if left is not None and left <= len(data):
                        sink.sendall(data[:left])
                        break
                if not self.silent:
                    sink.sendall(data)
        self.close()
        with self._lock:
            self._ended_pumps += 1
            both = self._ended_pumps == 2
        if both:
            self.near.close()
            self.far.close()


class Wire:
    """Listens on a port of its own and leads to Redis. ``_links`` is guarded by ``_lock``."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self._port = 0
        self._lock = threading.Lock()
        self._links: list[_Link] = []
        threading.Thread(target=self._accept, name="wire", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Listen no more and break every connection."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()

    def lead_to(self, port: int) -> None:
        """Set where Redis is."""
        self._port = port

    def links(self) -> list[_Link]:
        """Return the connections there are."""
        with self._lock:
            return list(self._links)

    def cut_all(self) -> None:
        """Break every connection."""
        for link in self.links():
            link.cut(0)

    def silence(self, sending: bytes) -> int:
        """Carry nothing more on the connections that last sent a command; returns how many these are."""
        links = [link for link in self.links() if sending in link.sent]
        for link in links:
            link.silent = True
        return len(links)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._port), timeout=5)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                for end in (near, far):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self._links = [link for link in self._links if link.near.fileno() >= 0]
                    self._links.append(_Link(near, far))
