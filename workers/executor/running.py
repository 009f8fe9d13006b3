"""Running to its end what a call of a function gave: a coroutine, a generator, or a plain value."""

from __future__ import annotations

import contextlib
import types
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

Wanted = Callable[[], bool]
Emit = Callable[[object], None]

_END = object()


def to_its_end(given: Any, stream: tuple[Wanted, Emit] | None) -> Any:
    """Return the value of the call that gave ``given``.

    With a ``stream``, a generator is run as far as it is wanted, and each value that it yields is emitted; the call's
    value is what the generator returns. Without one, a generator is a value like any other.
    """
    if isinstance(given, types.CoroutineType):
        import asyncio  # noqa: PLC0415 - takes time in a cold start, and most calls do without

        return asyncio.run(given)
    if stream is not None and isinstance(given, types.GeneratorType):
        return _stream(given, *stream)
    if stream is not None and isinstance(given, types.AsyncGeneratorType):
        return _stream_async(given, *stream)
    return given


def _stream(generator: Generator[Any, None, Any], wanted: Wanted, emit: Emit) -> Any:
    with contextlib.closing(generator):
        while wanted():
            try:
                value = next(generator)
            except StopIteration as end:
                return end.value
            emit(value)
    return None


def _stream_async(generator: AsyncGenerator[Any, None], wanted: Wanted, emit: Emit) -> None:
    import asyncio  # noqa: PLC0415 - as above

    async def following() -> Any:
        return await anext(generator, _END)

    with asyncio.Runner() as runner:
        try:
            while wanted() and (value := runner.run(following())) is not _END:
                emit(value)
        finally:
            runner.run(_close(generator))


async def _close(generator: AsyncGenerator[Any, None]) -> None:
    await generator.aclose()
