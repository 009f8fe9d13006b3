"""Yielded values on their way to the worker: no more of them than its reader has asked for."""

from __future__ import annotations

import select
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from readie.protocol.payload import Buffer, total_size
from workers.executor import stdio, wire
from workers.executor.wire import Kind


class Values:
    """Sends one call's values. ``credit`` is that of the CALL frame; CREDIT frames of later ones replace it."""

    def __init__(self, connection: socket.socket, credit: Mapping[str, Any]) -> None:
        self._connection = connection
        self._credit = credit
        self._sent = 0
        self._sent_bytes = 0

    def wanted(self) -> bool:
        """Wait until another value may be sent; ``False`` when nobody wants any more."""
        while True:
            spent = self._sent >= self._credit["values"] or self._sent_bytes >= self._credit["bytes"]
            if not spent and not select.select([self._connection], [], [], 0)[0]:
                return True
            self._credit = wire.read_json(self._connection, Kind.CREDIT)
            if self._credit["stop"]:
                return False

    def send(self, pieces: Sequence[Buffer]) -> None:
        """Send a value's payload container, after all that was printed before it."""
        stdio.flush()
        wire.send_frame(self._connection, Kind.YIELD, pieces)
        self._sent += 1
        self._sent_bytes += total_size(pieces)
