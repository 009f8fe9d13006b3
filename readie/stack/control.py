"""What a supervisor and the command that started it tell each other, over a socket pair.

The supervisor sends events, one JSON line each. The command sends one byte to say that the stack shall outlive it; when
it goes without having said so, the supervisor stops everything.
"""

import socket
from contextlib import suppress
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

DETACH: Final = b"d"
LAST_KINDS: Final = frozenset({"stopped", "already_running", "failed"})
"""Kinds of the event that a supervisor ends with."""


class Event(BaseModel):
    """Something a person may want to know."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["cleaned", "ready", "running", "ended", "gave_up", "stopping", "stopped", "already_running", "failed"]
    """``ready``, ``ended``, ``gave_up`` and ``stopping`` are of one part, the others of the stack."""
    part: str = ""
    text: str = ""


class Control:
    """The supervisor's end."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection: socket.socket | None = connection

    def send(self, event: Event) -> None:
        """Tell the command, if it is there. One that does not read (it may be suspended) misses events."""
        if self.connection is not None:
            with suppress(OSError):
                self.connection.send(event.model_dump_json().encode() + b"\n")

    def command_vanished(self) -> bool:
        """Read what the command said: ``True`` when it went without letting go of the stack."""
        if self.connection is None:
            return False
        try:
            said = self.connection.recv(16)
        except BlockingIOError:
            return False
        except OSError:
            said = b""
        self.close()
        return said != DETACH

    def close(self) -> None:
        """End the connection."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None
