"""``@remote``: a function that runs elsewhere when it is called."""

import functools
import operator
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, cast, overload

from .errors import ConfigurationError
from .hints import Hints, scan
from .options import Options, RemoteOptions

if TYPE_CHECKING:
    from .call import Call
    from .client import Client
    from .explanation import Explanation
    from .stream import Stream

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class RemoteFunction(Generic[P, R]):
    """A function whose calls run on a worker. Made by :func:`remote`.

    ``f(x)`` blocks for the value; ``f.spawn(x)`` returns a :class:`~readie.Call` now; ``await f.aio(x)`` is for event
    loops; ``f.local(x)`` runs here. Sent along as a global of another remote function, it is the plain function again.
    """

    def __init__(self, function: Callable[P, R], options: Options, client: "Client | None" = None) -> None:
        self._options = options
        self._client = client
        self.__wrapped__ = function
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<readie.RemoteFunction {getattr(self, '__qualname__', self.__wrapped__)}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run remotely and wait for the value; raises what :meth:`Call.result <readie.Call.result>` raises.

        A generator function gives a :class:`~readie.Stream` at once, and an ``async def`` its value, run to its end.
        """
        if (stream := self._stream(*args, **kwargs)) is not None:
            return cast("R", stream)
        return self.spawn(*args, **kwargs).result()

    def spawn(self, *args: P.args, **kwargs: P.kwargs) -> "Call[R]":
        """Submit the call and return at once.

        Raises:
            SerializationError: the function or an argument can't be pickled.
            ClusterUnavailableError: Redis can't be reached.
        """
        # At the first call: it takes Redis' client along, which most of what imports a decorated function never needs.
        from .client import default_client  # noqa: PLC0415

        client = self._client or default_client()
        return client.submit(self.__wrapped__, args, kwargs, self._options, self.hints)

    @overload
    def aio(  # type: ignore[overload-overlap]
        self: "RemoteFunction[P, Generator[T, Any, Any]]", *args: P.args, **kwargs: P.kwargs
    ) -> "Stream[T]": ...

    @overload
    def aio(  # type: ignore[overload-overlap]
        self: "RemoteFunction[P, Iterator[T]]", *args: P.args, **kwargs: P.kwargs
    ) -> "Stream[T]": ...

    @overload
    def aio(  # type: ignore[overload-overlap]
        self: "RemoteFunction[P, AsyncGenerator[T, Any]]", *args: P.args, **kwargs: P.kwargs
    ) -> "Stream[T]": ...

    @overload
    def aio(  # type: ignore[overload-overlap]
        self: "RemoteFunction[P, AsyncIterator[T]]", *args: P.args, **kwargs: P.kwargs
    ) -> "Stream[T]": ...

    @overload
    def aio(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...

    def aio(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Run remotely without blocking the event loop: ``await f.aio(x)``; ``async for`` for a generator function."""
        return self._stream(*args, **kwargs) or self._aio(*args, **kwargs)

    async def _aio(self, *args: P.args, **kwargs: P.kwargs) -> R:
        import asyncio  # noqa: PLC0415 - whoever awaits has it already

        call = await asyncio.to_thread(self.spawn, *args, **kwargs)
        return await call.aresult()

    def _stream(self, *args: P.args, **kwargs: P.kwargs) -> "Stream[Any] | None":
        """Return an iterator whose first step submits the call of a generator function, as it begins a local one."""
        from .stream import Stream, yields  # noqa: PLC0415 - as for the client

        if not yields(self.__wrapped__):
            return None
        return Stream(functools.partial(self.spawn, *args, **kwargs), owns=True)

    def local(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run here, as if the function had not been decorated."""
        return self.__wrapped__(*args, **kwargs)

    def explain(self) -> "Explanation":
        """Ask a router what it would do with a call now: hints, every start's predicted seconds, the choice and why.

        ``print()`` of the answer shows it as a table.

        Raises:
            ClusterUnavailableError: Redis can't be reached, or no router answers.
        """
        from .client import default_client  # noqa: PLC0415

        client = self._client or default_client()
        return client.explain(self.__wrapped__, self._options, self._hints)

    def options(self, **options: Unpack[RemoteOptions]) -> "RemoteFunction[P, R]":
        """Return a copy with changed options.

        Raises:
            ConfigurationError: an unknown option or a wrong value.
        """
        return RemoteFunction(self.__wrapped__, self._options.changed(options), self._client)

    def hints(self) -> Hints:
        """Return which modules the function was found to need; scanned once."""
        return self._hints

    @functools.cached_property
    def _hints(self) -> Hints:
        return scan(self.__wrapped__)

    def __get__(self, instance: object, owner: type | None = None) -> "RemoteFunction[..., R]":
        if instance is None:
            return cast("RemoteFunction[..., R]", self)
        bound = self.__wrapped__.__get__(instance, owner)
        return RemoteFunction(bound, self._options, self._client)

    def __reduce__(self) -> tuple[Any, ...]:
        # The plain function, by means every Python has: a sandbox need not know this class.
        return operator.getitem, ((self.__wrapped__,), 0)


@overload
def remote(function: Callable[P, Coroutine[Any, Any, R]], /) -> RemoteFunction[P, R]: ...


@overload
def remote(function: Callable[P, R], /) -> RemoteFunction[P, R]: ...


@overload
def remote(**options: Unpack[RemoteOptions]) -> Callable[[Callable[P, R]], RemoteFunction[P, R]]: ...


def remote(function: Callable[P, R] | None = None, /, **options: Any) -> Any:
    """Make a function run remotely: ``@remote`` or ``@remote(timeout=60, ...)``.

    Args:
        function: the function, when used bare.
        **options: fields of :class:`readie.options.Options`.

    Raises:
        ConfigurationError: an unknown option (names the nearest known one), a wrong value, or something not callable.
        InvalidRequestError: options that contradict each other.
    """
    checked = Options.of(options)

    def decorate(function: Callable[P, R]) -> RemoteFunction[P, R]:
        if not callable(function):
            raise ConfigurationError(f"remote() decorates a function, not {type(function).__name__}")
        return RemoteFunction(function, checked)

    return decorate if function is None else decorate(function)
