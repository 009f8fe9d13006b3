"""What a call prints, as text lines or as it is."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from .errors import ResultExpiredError

if TYPE_CHECKING:
    from .call import Call

_MOST_LINE_BYTES: Final = 1 << 20
"""A line that is longer is given in parts."""


class Output:
    """Reads a call's output in order, as it is.

    Args:
        call: whose.
        offset: bytes to leave out.
        follow: wait for more until the call has ended.
    """

    def __init__(self, call: "Call[object]", offset: int, *, follow: bool) -> None:
        self._call = call
        self._follow = follow
        self.offset = offset
        """Bytes of output that were read or left out."""

    def step(self) -> "bytes | Future[None] | None":
        """Return the next part, a future to be waited for first, or ``None`` for the end.

        Where output is no longer kept, a line says how much is missing.
        """
        call = self._call
        # Asked for before the look, or a word that comes in between would be missed.
        news = call.reading.news(call.id)
        goes_on = self._follow and not call.ended
        printed = call.reading.read_output(call.id, self.offset, listen=goes_on)
        if printed.state is None:
            raise ResultExpiredError(f"call {call.id}: its output is no longer kept, or there never was such a call")
        if not printed.pieces:
            return news if goes_on else None
        parts = []
        for before, data in printed.pieces:
            if before > self.offset:
                parts.append(b"[... %d bytes of output are no longer kept ...]\n" % (before - self.offset))
            parts.append(data)
            self.offset = before + len(data)
        return b"".join(parts)

    def __iter__(self) -> Iterator[bytes]:
        while (part := self.step()) is not None:
            if isinstance(part, Future):
                part.result()
            else:
                yield part


class Logs:
    """Iterates over the lines a call prints, with ``for`` or ``async for``; made by :meth:`Call.logs`.

    Standard output and error are one sequence, as on a terminal. Of a line that was written over (``\\r``, as progress
    bars do), the last state is given.

    Example:
        ```python
        for line in call.logs(follow=True):
            print(line)
        ```
    """

    def __init__(self, call: "Call[object]", offset: int, *, follow: bool) -> None:
        self._output = Output(call, offset, follow=follow)
        self._offset = offset
        self._unread = bytearray()

    @property
    def offset(self) -> int:
        """Where the next line begins, in bytes of output: what ``logs(offset=...)`` goes on from."""
        return self._offset

    def raw(self) -> Iterator[bytes]:
        """Yield what comes next as it was printed, in parts of any size, instead of lines."""
        return iter(self._output)

    def __iter__(self) -> "Logs":
        return self

    def __next__(self) -> str:
        """Return the next line without its end; with ``follow``, wait for it."""
        while isinstance(line := self._step(), Future):
            line.result()
        if line is None:
            raise StopIteration
        return line

    def __aiter__(self) -> "Logs":
        return self

    async def __anext__(self) -> str:
        while isinstance(line := await asyncio.to_thread(self._step), Future):
            await asyncio.shield(asyncio.wrap_future(line))
        if line is None:
            raise StopAsyncIteration
        return line

    def _step(self) -> "str | Future[None] | None":
        while (end := self._unread.find(b"\n")) < 0 and len(self._unread) < _MOST_LINE_BYTES:
            part = self._output.step()
            if isinstance(part, Future):
                return part
            if part is None:
                if not self._unread:
                    return None
                break
            self._unread += part
        length = len(self._unread) if end < 0 else end + 1
        line = bytes(self._unread[:length])
        del self._unread[:length]
        self._offset = self._output.offset - len(self._unread)
        return line.rstrip(b"\r\n").rpartition(b"\r")[2].decode(errors="replace")
