"""Prints what calls print (``stream_logs=True``) to standard error, each line after the name of its call."""

import codecs
import re
import sys
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from .errors import ReadieError
from .logs import Output

if TYPE_CHECKING:
    from .call import Call

_PRINT_SECONDS: Final = 10.0
_PIECE: Final = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")


class Printer:
    """Writes the output of several calls to one terminal. ``_unfinished`` is guarded by ``_lock``.

    A part of a line is written at once, so that progress bars move; they begin with the call's prefix each time they
    are drawn. The line that one call has begun is ended before another writes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unfinished: Prefixed | None = None

    def write(self, call: "Prefixed", text: str) -> None:
        """Write what a call has printed."""
        with self._lock:
            out = []
            if self._unfinished is not call:
                if self._unfinished is not None and text:
                    out.append("\n")
                call.line_begins = True
            for piece in _PIECE.findall(text):
                out.append(call.prefix + piece if call.line_begins else piece)
                call.line_begins = piece.endswith(("\n", "\r"))
                self._unfinished = None if piece.endswith("\n") else call
            _write_to_stderr("".join(out))

    def finish(self, call: "Prefixed") -> None:
        """End the line that a call has begun, when the call has ended."""
        with self._lock:
            if self._unfinished is call:
                self._unfinished = None
                _write_to_stderr("\n")


_printer: Final = Printer()


class Prefixed:
    """A call's lines on the terminal."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.line_begins = True
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def write(self, output: bytes) -> None:
        """Write a part of the call's output."""
        _printer.write(self, self._decoder.decode(output))

    def finish(self) -> None:
        """Write what is left, a line's end among it."""
        _printer.write(self, self._decoder.decode(b"", final=True))
        _printer.finish(self)


class PrintedCall:
    """Prints one call's output on its client's background thread."""

    def __init__(self, call: "Call[object]", name: str, news: "Future[None]") -> None:
        """Begin with the first ``news`` of the call, whose submission has its client listen."""
        self._done = threading.Event()
        self._call = call
        self._lines = Prefixed(f"[{name} {call.id[:6]}] ")
        self._output = Output(call, 0, follow=True)
        call.reading.start_background()
        self._await(news)

    def wait(self) -> None:
        """Wait until all is printed, which does not take long once the call has ended."""
        self._done.wait(_PRINT_SECONDS)

    def _await(self, news: "Future[None]") -> None:
        news.add_done_callback(lambda _: self._call.reading.later(self._step))

    def _step(self) -> None:
        try:
            if (part := self._write()) is not None:
                self._await(part)
                return
        except ReadieError as error:
            self._lines.write(f"[its output can't be read: {error}]\n".encode())
        self._lines.finish()
        self._done.set()

    def _write(self) -> "Future[None] | None":
        """Write what there is; return what to wait for then, ``None`` at the end."""
        while not self._nothing_left():
            part = self._output.step()
            if part is None or isinstance(part, Future):
                return part
            self._lines.write(part)
        return None

    def _nothing_left(self) -> bool:
        """Return whether the call has ended and said that it printed no more; saves asking."""
        return self._call.ended and self._call.printed_bytes == self._output.offset


def _write_to_stderr(text: str) -> None:
    # Looked up each time: notebooks and tests put another one in its place.
    if text and sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()
