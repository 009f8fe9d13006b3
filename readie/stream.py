"""The values of a generator that runs elsewhere, while it runs."""

import asyncio
import functools
import inspect
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from .errors import ReadieError, ResultExpiredError, SignatureError, WorkerLostError
from .event_loop import refuse_in_running_loop
from .ledger.streams import Position, ReadElsewhereError, StreamRestartedError, ValuesLostError
from .pickling import load_value

if TYPE_CHECKING:
    from .call import Call
    from .reading import Reading

T_co = TypeVar("T_co", covariant=True)

_MOST_INLINE_BYTES: Final = 64 << 10
"""A larger value is unpickled beside the event loop, not on it."""


def yields(function: Callable[..., Any]) -> bool:
    """Return whether a function is a generator function, async ones included."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


@dataclass(frozen=True, slots=True)
class _Value:
    """The next value, still pickled."""

    container: bytes


@dataclass(frozen=True, slots=True)
class _Ended:
    """There are no more values; what the generator returned."""

    value: Any


class Stream(Generic[T_co]):
    """Iterates over what a remote generator yields, with ``for`` or ``async for``; made by calling one.

    The function runs on while values are read, and is at most 32 values (or 4 MiB of them) ahead of the reader. What it
    raises is raised here, after the values before it. Leaving the loop, ``close()``, or the end of this process stops
    the function.

    Example:
        ```python
        for line in read_lines("data.csv"):
            print(line)
        async for line in read_lines.aio("data.csv"):
            print(line)
        ```
    """

    def __init__(self, start: "Callable[[], Call[Any]]", *, owns: bool) -> None:
        """Read the values of the call that ``start`` gives at the first step; ``owns``: it stops with this reader."""
        self._start = start
        self._owns = owns
        self._call: Call[Any] | None = None
        self._reading: Reading | None = None
        # One step at a time: guards all that follows.
        self._lock = threading.Lock()
        self._buffer: deque[bytes] = deque()
        self._known: Position | None = None
        self._now: Position | None = None
        self._closed = False

    @property
    def call(self) -> "Call[Any]":
        """The call that yields the values; ``call.result()`` is what the generator returns."""
        return self.begin()

    def begin(self) -> "Call[Any]":
        """Submit the call, if the first step has not done so, and return it."""
        if self._call is None:
            self._call = self._start()
            self._reading = self._call.reading
            if self._owns:
                self._reading.own(self)
        return self._call

    def __iter__(self) -> "Stream[T_co]":
        return self

    def __next__(self) -> T_co:
        """Wait for the next value.

        Raises:
            RemoteError: the function raised; also an instance of the function's own exception type.
            RunningLoopError: in an event loop; ``async for`` is for that.
            WorkerLostError: the worker was lost after values were read; it may be running again, from the beginning.
            ReadieError: anything else that ended the call.
        """
        refuse_in_running_loop("reading a stream with `for`", "async for")
        while isinstance(step := self._step(), Future):
            step.result()
        if isinstance(step, _Ended):
            raise StopIteration(step.value)
        return cast("T_co", load_value(step.container))

    def __aiter__(self) -> "Stream[T_co]":
        return self

    async def __anext__(self) -> T_co:
        # What is here already needs no thread.
        while isinstance(step := self._step() if self._buffer else await asyncio.to_thread(self._step), Future):
            # Shielded, because other readers of the call wait for the same word.
            await asyncio.shield(asyncio.wrap_future(step))
        if isinstance(step, _Ended):
            raise StopAsyncIteration
        if len(step.container) > _MOST_INLINE_BYTES:
            return cast("T_co", await asyncio.to_thread(load_value, step.container))
        return cast("T_co", load_value(step.container))

    def close(self) -> None:
        """Stop the function, at its next ``yield`` or by killing its sandbox; nothing when it has ended.

        Raises:
            ClusterUnavailableError: Redis can't be reached.
        """
        if not self._closed:
            self._closed = True
            self._buffer.clear()
            if self._owns and self._call is not None and not self._call.ended:
                self._call.reading.stop(self._call.id)

    async def aclose(self) -> None:
        """Like :meth:`close`, without blocking the event loop."""
        await asyncio.to_thread(self.close)

    def __del__(self) -> None:
        if self._owns and not self._closed and self._reading is not None and self._call is not None:
            # Not from here: this may run in any thread, in the middle of anything.
            self._reading.later(functools.partial(self._reading.stop, self._call.id))

    def _step(self) -> "_Value | _Ended | Future[None]":
        """Return the next value, the end, or a future to be waited for first."""
        with self._lock:
            if not self._buffer and not self._closed:
                call = self.call
                # Asked for before the look, or a word that comes in between would be missed.
                news = call.reading.news(call.id)
                ended = call.ended
                self._take()
                if not self._buffer and not ended:
                    return news
            if self._buffer:
                container = self._buffer.popleft()
                assert self._now is not None
                self._now = Position(self._now.attempt, self._now.taken + 1, self._now.taken_bytes + len(container))
                return _Value(container)
            if self._closed:
                return _Ended(None)
            self._closed = True
        value = self.call.result()
        if self._now is not None and self._now.taken < (self.call.report().yielded or 0):
            raise self._lost()
        return _Ended(value)

    def _lost(self) -> ResultExpiredError:
        return ResultExpiredError(f"call {self.call.id}: Redis was restarted and has lost some of its values")

    def _take(self) -> None:
        call = self.call
        try:
            taken = call.reading.take_values(call.id, self._known, self._now)
        except StreamRestartedError:
            self._closed = True
            raise WorkerLostError(
                f"call {call.id}: its run ended early, after some of its values had been read; it runs again from the "
                f"beginning, which readie.get_call({call.id!r}).stream() reads"
            ) from None
        except ReadElsewhereError:
            self._closed = True
            raise ReadieError(f"call {call.id}: its values are read by somebody else, too") from None
        except ValuesLostError:
            self.close()
            raise self._lost() from None
        except SignatureError:
            self.close()
            raise
        if taken.state is None:
            self._closed = True
            raise ResultExpiredError(f"call {call.id}: its values are no longer kept, or there never was such a call")
        self._known = self._now = taken.position
        self._buffer.extend(taken.values)
