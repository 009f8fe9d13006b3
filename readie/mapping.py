"""Many calls at once: ``f.map`` and ``f.starmap`` with a bounded number under way, ``gather``, ``as_completed``."""

import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sized
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, cast, overload

from .errors import (
    ConfigurationError,
    ReadieError,
    ResourceExhaustedError,
    RunningLoopError,
    SerializationError,
)
from .event_loop import refuse_in_running_loop
from .options import check_timeout

if TYPE_CHECKING:
    import asyncio

    from .call import Call

R = TypeVar("R")

DEFAULT_WINDOW: Final = 64


class Mapping(Generic[R]):
    """Calls a function for each item of an iterable. ``f.map`` and ``f.starmap`` are such objects.

    Args:
        spawn: submits the call for one item.

    Example:
        ```python
        for area in areas.map(shapes, progress=True):
            print(area)
        async for area in areas.map.aio(shapes, ordered=False):
            print(area)
        ```
    """

    def __init__(self, spawn: Callable[[Any], "Call[R]"]) -> None:
        self._spawn = spawn

    @overload
    def __call__(
        self,
        items: Iterable[Any],
        *,
        ordered: bool = True,
        return_exceptions: Literal[False] = False,
        window: int = DEFAULT_WINDOW,
        progress: bool = False,
    ) -> Iterator[R]: ...

    @overload
    def __call__(
        self,
        items: Iterable[Any],
        *,
        ordered: bool = True,
        return_exceptions: bool,
        window: int = DEFAULT_WINDOW,
        progress: bool = False,
    ) -> Iterator[R | Exception]: ...

    def __call__(
        self,
        items: Iterable[Any],
        *,
        ordered: bool = True,
        return_exceptions: bool = False,
        window: int = DEFAULT_WINDOW,
        progress: bool = False,
    ) -> Iterator[Any]:
        """Yield the values while the calls run. The input may be infinite.

        Args:
            items: one call each; read only as far as the window allows.
            ordered: values in the order of the items, instead of as they come.
            return_exceptions: yield the error of a call in its place, instead of raising it; also that of an item that
                can't be sent, because it can't be pickled or is too large.
            window: most calls under way at once (submitted, and their value not yet taken).
            progress: show a progress bar on stderr.

        Raises:
            ConfigurationError: a window below 1.
            RunningLoopError: in an event loop; ``async for ... in f.map.aio(...)`` is for that.
            ReadieError: of the first call that failed; those under way are cancelled, as they are when the loop is
                left early or interrupted.
        """
        refuse_in_running_loop("f.map(...)", "async for value in f.map.aio(...)")
        spawn = _spawn_or_keep_error(self._spawn) if return_exceptions else self._spawn
        under_way = _UnderWay(spawn, items, ordered=ordered, window=window)
        return self._values(under_way, return_exceptions, _progress(items, shown=progress))

    @overload
    def aio(
        self,
        items: Iterable[Any],
        *,
        ordered: bool = True,
        return_exceptions: Literal[False] = False,
        window: int = DEFAULT_WINDOW,
        progress: bool = False,
    ) -> AsyncIterator[R]: ...

    @overload
    def aio(
        self,
        items: Iterable[Any],
        *,
        ordered: bool = True,
        return_exceptions: bool,
        window: int = DEFAULT_WINDOW,
        progress: bool = False,
    ) -> AsyncIterator[R | Exception]: ...

    def aio(
        self,
        items: Iterable[Any],
        *,
        ordered: bool = True,
        return_exceptions: bool = False,
        window: int = DEFAULT_WINDOW,
        progress: bool = False,
    ) -> AsyncIterator[Any]:
        """Do the same without blocking the event loop, as an asynchronous iterator; ``items`` are read in a thread."""
        spawn = _spawn_or_keep_error(self._spawn) if return_exceptions else self._spawn
        under_way = _UnderWay(spawn, items, ordered=ordered, window=window)
        return self._values_aio(under_way, return_exceptions, _progress(items, shown=progress))

    def _values(
        self, under_way: "_UnderWay[R]", return_exceptions: bool, progress: contextlib.AbstractContextManager[Any]
    ) -> Iterator[Any]:
        with progress as advance:
            try:
                while under_way.fill():
                    call = under_way.next_ended()
                    try:
                        value: Any = call.result()
                    except Exception as error:
                        if not return_exceptions:
                            raise
                        value = error
                    under_way.took(call)
                    advance()
                    yield value
            finally:
                under_way.cancel()

    async def _values_aio(
        self, under_way: "_UnderWay[R]", return_exceptions: bool, progress: contextlib.AbstractContextManager[Any]
    ) -> AsyncIterator[Any]:
        import asyncio  # noqa: PLC0415 - whoever awaits has it already

        with progress as advance:
            try:
                while await asyncio.to_thread(under_way.fill):
                    call = await under_way.anext_ended()
                    try:
                        value: Any = await call.aresult()
                    except Exception as error:
                        if not return_exceptions:
                            raise
                        value = error
                    under_way.took(call)
                    advance()
                    yield value
            finally:
                await asyncio.to_thread(under_way.cancel)


class _NotSent:
    """Stands among calls for one that could not be sent."""

    def __init__(self, error: ReadieError) -> None:
        self._error = error
        self.end: Future[None] = Future()
        self.end.set_result(None)

    def result(self) -> Any:
        raise self._error

    async def aresult(self) -> Any:
        raise self._error

    def cancel(self) -> bool:
        return False


def _spawn_or_keep_error(spawn: Callable[[Any], "Call[R]"]) -> Callable[[Any], "Call[R]"]:
    """Make an error that is the item's a call that has ended; any other, such as a Redis that is gone, is raised."""

    def spawn_item(item: Any) -> "Call[R]":
        try:
            return spawn(item)
        except (ConfigurationError, SerializationError, ResourceExhaustedError) as error:
            return cast("Call[R]", _NotSent(error))

    return spawn_item


class _UnderWay(Generic[R]):
    """The calls of one mapping that were submitted and not yet taken. For one user at a time."""

    def __init__(self, spawn: Callable[[Any], "Call[R]"], items: Iterable[Any], *, ordered: bool, window: int) -> None:
        if not isinstance(window, int) or window < 1:
            raise ConfigurationError(f"window={window!r}: give a whole number, 1 or more")
        self._spawn = spawn
        self._items = iter(items)
        self._ordered = ordered
        self._window = window
        self._calls: deque[Call[R]] = deque()
        self._ends: dict[Call[R], asyncio.Future[Any]] = {}
        """For the event loop that waits: one future for each call, however often it is waited for."""
        self._exhausted = False
        self._cancelled = False

    def fill(self) -> bool:
        """Submit calls up to the window, or until a value can be taken; returns whether any call is under way."""
        while not self._exhausted and not self._cancelled and len(self._calls) < self._window and not self._has_ended():
            try:
                item = next(self._items)
            except StopIteration:
                self._exhausted = True
            else:
                self._calls.append(self._spawn(item))
        if self._cancelled:  # while a thread of ours was at it
            self.cancel()
        return bool(self._calls)

    def next_ended(self) -> "Call[R]":
        """Wait for the call whose value comes next."""
        return self._calls[0] if self._ordered else _first_ended(self._calls)

    async def anext_ended(self) -> "Call[R]":
        import asyncio  # noqa: PLC0415

        if self._ordered:
            return self._calls[0]
        for call in self._calls:
            if call not in self._ends:
                self._ends[call] = asyncio.wrap_future(call.end)
        done, _ = await asyncio.wait(self._ends.values(), return_when=asyncio.FIRST_COMPLETED)
        return next(call for call, end in self._ends.items() if end in done)

    def took(self, call: "Call[R]") -> None:
        self._calls.remove(call)
        self._ends.pop(call, None)

    def cancel(self) -> None:
        """Cancel what is left; harmless when there is nothing."""
        self._cancelled = True
        while self._calls:
            with contextlib.suppress(ReadieError):
                self._calls.popleft().cancel()

    def _has_ended(self) -> bool:
        candidates = list(self._calls)[:1] if self._ordered else self._calls
        return any(call.end.done() for call in candidates)


def _first_ended(calls: Iterable["Call[R]"], timeout: float | None = None) -> "Call[R]":
    by_end = {call.end: call for call in calls}
    done, _ = wait(by_end, timeout, return_when=FIRST_COMPLETED)
    if not done:
        raise TimeoutError(f"none of {len(by_end)} calls has ended after {timeout} s")
    return next(call for end, call in by_end.items() if end in done)


def gather(*calls: "Call[Any]", return_exceptions: bool = False) -> list[Any]:
    """Wait for all calls and return their values in the order given.

    In an event loop, ``await asyncio.gather(*calls)`` does this: a call can be awaited.

    Args:
        calls: from any functions.
        return_exceptions: put the error of a call in its place, instead of raising the first one.

    Raises:
        ConfigurationError: something that is no call.
        RunningLoopError: in an event loop.
        ReadieError: of the first call in order that failed; the others go on.

    Example:
        ```python
        first, second = readie.gather(mean.spawn(rows), median.spawn(rows))
        ```
    """
    _check_calls("readie.gather(*calls)", calls)
    values = []
    for call in calls:
        try:
            values.append(call.result())
        except RunningLoopError:
            raise
        except Exception as error:
            if not return_exceptions:
                raise
            values.append(error)
    return values


def as_completed(calls: Iterable["Call[Any]"], timeout: float | None = None) -> Iterator["Call[Any]"]:
    """Yield calls as they end; ``result()`` of each returns at once.

    In an event loop, ``asyncio.as_completed(calls)`` does this: a call can be awaited.

    Args:
        calls: from any functions.
        timeout: longest wait for the next one, in seconds.

    Raises:
        ConfigurationError: something that is no call, or a timeout that is no number.
        RunningLoopError: in an event loop.
        TimeoutError: no call ended within ``timeout``.

    Example:
        ```python
        for call in readie.as_completed([mean.spawn(rows), median.spawn(rows)]):
            print(call.id, call.result())
        ```
    """
    refuse_in_running_loop("readie.as_completed(...)", "asyncio.as_completed(calls)")
    check_timeout(timeout)
    try:
        left = list(calls)
    except TypeError:
        raise ConfigurationError(
            f"readie.as_completed(calls) takes an iterable of calls, not {_described(calls)}"
        ) from None
    _check_calls("readie.as_completed(calls)", left)
    return _as_completed(left, timeout)


def _as_completed(left: list["Call[Any]"], timeout: float | None) -> Iterator["Call[Any]"]:
    while left:
        call = _first_ended(left, timeout)
        left.remove(call)
        yield call


def _check_calls(form: str, calls: Iterable[object]) -> None:
    from .call import Call  # noqa: PLC0415 - whoever has a call has it already

    for number, call in enumerate(calls, 1):
        if not isinstance(call, Call):
            raise ConfigurationError(
                f"{form} takes calls, as f.spawn(...) returns them; number {number} is {_described(call)}"
            )


def _described(value: object) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


@contextlib.contextmanager
def _progress(items: Iterable[Any], *, shown: bool) -> Iterator[Callable[[], None]]:
    """Show a bar, if it is wanted; gives what advances it by one call."""
    if not shown:
        yield lambda: None
        return
    from rich.console import Console  # noqa: PLC0415 - for those who want the bar
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    total = len(items) if isinstance(items, Sized) else None
    columns = TextColumn("calls"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("calls", total=total)
        yield lambda: bar.advance(task)
