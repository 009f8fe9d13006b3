"""What happens between a call's payload and its result: output, yielded values, and credit for more of them."""

from __future__ import annotations

import select
import socket
import time
from dataclasses import asdict, dataclass
from typing import Final, Protocol

from readie.protocol.payload import Buffer
from workers.executor import wire
from workers.executor.wire import Frame, FrameTooLargeError, Kind, WireError
from workers.sandbox.output import OutputPipe

_OUTPUT_PAUSE_SECONDS: Final = 0.01
"""Between two reads of what a call prints: many lines go on as one piece, and no call can keep its worker busy."""
_LOOK_SECONDS: Final = 15.0
"""After this long, credit is looked for without a wake-up: bounds what a lost one can cost."""
_LONGEST_WAIT_SECONDS: Final = 86400.0
"""At once: ``poll`` counts milliseconds in a C int, and a call's timeout may be longer than that."""
_STOP_SECONDS: Final = 2.0
"""How long a function whose values nobody wants may run on until its next ``yield``."""


@dataclass(frozen=True)
class Credit:
    """What a call may have sent in all before it sends another value; ``stop``: no more are wanted."""

    values: int
    bytes: int
    stop: bool = False


class UnwantedError(Exception):
    """Nobody wants the call's values any more, and it did not stop by itself: kill the sandbox."""


class Listener(Protocol):
    """Hears of a call while it runs; what it raises ends the call."""

    @property
    def credit(self) -> Credit | None:
        """What the call may send now, ``None`` when no values are wanted at all."""

    def fileno(self) -> int:
        """Return a descriptor that can be read from when ``look`` should be called; not asked without credit."""

    def look(self) -> None:
        """Look for new credit."""

    def printed(self, output: bytes) -> None:
        """Take what the call has printed."""

    def yielded(self, container: Buffer) -> None:
        """Take a value that the call has yielded, and maybe give new credit."""


class Deaf:
    """Listens to a call of which only the result is wanted."""

    credit = None

    def fileno(self) -> int:
        """Not asked without credit."""
        raise AssertionError("nothing is awaited from who wants the result alone")

    def look(self) -> None:
        """Not asked without credit."""

    def printed(self, output: bytes) -> None:
        """Drop it."""

    def yielded(self, container: Buffer) -> None:
        """Not asked without credit."""


class Conversation:
    """One call's, in one thread. ``deadline`` is a ``time.monotonic()`` value."""

    def __init__(
        self, connection: socket.socket, output: OutputPipe, listener: Listener, deadline: float | None
    ) -> None:
        self._connection = connection
        self._output = output
        self._listener = listener
        self._deadline = deadline
        self._given = listener.credit
        self._received = 0
        self._received_bytes = 0
        self._stop_at: float | None = None
        self._output_at: float | None = None
        """When output is read again; ``None``: as soon as there is some."""
        self._look_at = time.monotonic() + _LOOK_SECONDS
        self._polled = select.poll()

    def until_result(self, max_bytes: int) -> Frame:
        """Return the RESULT frame; a value may have ``max_bytes`` bytes.

        Raises ``UnwantedError`` and what ``wire.read_frame`` raises.
        """
        self._polled.register(self._connection, select.POLLIN)
        self._polled.register(self._output.fileno(), select.POLLIN)
        if self._given is not None:
            self._polled.register(self._listener.fileno(), select.POLLIN)
        while True:
            ready = self._wait()
            if self._connection.fileno() in ready:
                frame = self._read_frame(max_bytes)
                # All that was printed before the frame was sent is in the pipe by now.
                self.take_output()
                if frame.kind is Kind.RESULT:
                    return frame
                self._take_value(frame, max_bytes)
            elif self._output.fileno() in ready:
                self._read_output(ready[self._output.fileno()])
            elif self._given is not None and (self._listener.fileno() in ready or self._long_unseen()):
                self._listener.look()
                self._look_at = time.monotonic() + _LOOK_SECONDS
                self._give_credit()

    def take_output(self) -> None:
        """Take all that was printed until now."""
        if output := self._output.read():
            self._listener.printed(output)

    def _wait(self) -> dict[int, int]:
        now = time.monotonic()
        if self._output_at is not None and now >= self._output_at:
            self._output_at = None
            self._polled.register(self._output.fileno(), select.POLLIN)
        if self._deadline is not None and now >= self._deadline:
            raise TimeoutError("the deadline passed")
        if self._stop_at is not None and now >= self._stop_at:
            raise UnwantedError
        ends = [at for at in (self._deadline, self._stop_at, self._output_at) if at is not None]
        if self._given is not None and not self._given.stop:
            ends.append(self._look_at)
        # Rounded up, or the last millisecond would be spent asking again and again.
        milliseconds = None if not ends else max(0, int(min(min(ends) - now, _LONGEST_WAIT_SECONDS) * 1000) + 1)
        return dict(self._polled.poll(milliseconds))

    def _long_unseen(self) -> bool:
        return time.monotonic() >= self._look_at and self._stop_at is None

    def _read_frame(self, max_bytes: int) -> Frame:
        most = max(max_bytes, wire.MAX_JSON_BYTES)
        try:
            return wire.read_frame(self._connection, Kind.RESULT, Kind.YIELD, max_bytes=most, deadline=self._deadline)
        except FrameTooLargeError as error:
            if error.kind == Kind.YIELD.name:
                raise
            # An executor never sends such a one: only a value may be too large.
            raise WireError(str(error)) from None

    def _read_output(self, event: int) -> None:
        self.take_output()
        self._polled.unregister(self._output.fileno())
        if event & select.POLLIN:  # else every process that could print has ended
            self._output_at = time.monotonic() + _OUTPUT_PAUSE_SECONDS

    def _take_value(self, frame: Frame, max_bytes: int) -> None:
        size, given = len(frame.payload), self._given
        if given is None or self._received >= given.values or self._received_bytes >= given.bytes:
            raise WireError("a value came that was not asked for")
        if size > max_bytes:
            raise FrameTooLargeError(size, max_bytes, frame.kind.name)
        self._received += 1
        self._received_bytes += size
        self._listener.yielded(frame.payload)
        self._give_credit()

    def _give_credit(self) -> None:
        credit = self._listener.credit
        if credit is None or credit == self._given:
            return
        wire.send_json(self._connection, Kind.CREDIT, asdict(credit), deadline=self._deadline)
        self._given = credit
        if credit.stop:
            self._stop_at = time.monotonic() + _STOP_SECONDS
