"""``@remote``: a function that runs elsewhere when it is called."""

import contextlib
import functools
import operator
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, cast, overload

from .errors import ConfigurationError, ReadieError
from .event_loop import refuse_in_running_loop
from .hints import Hints, scan
from .options import Options, RemoteOptions

if TYPE_CHECKING:
    from .call import Call
    from .client import Client
    from .explanation import Explanation
    from .mapping import Mapping
    from .stream import Stream

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")


class RemoteFunction(Generic[P, R]):
    """A function whose calls run on a worker. Made by :func:`remote`.

    ``f(x)`` blocks for the value; ``f.spawn(x)`` returns a :class:`~readie.Call` now; ``await f.aio(x)`` is for event
    loops; ``f.local(x)`` runs here. Sent along as a global of another remote function, it is the plain function again.

    Example:
        ```python
        @remote
        def mean(rows):
            import pandas as pd
            return pd.DataFrame(rows).mean().to_dict()

        mean([{"a": 1}, {"a": 3}])
        ```
    """

    def __init__(self, function: Callable[P, R], options: Options, client: "Client | None" = None) -> None:
        self._options = options
        self._client = client
        self.__wrapped__ = function
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<readie.RemoteFunction {getattr(self, '__qualname__', self.__wrapped__)}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run remotely and wait for the value; an interrupt (Ctrl-C) cancels the call.

        A generator function gives a :class:`~readie.Stream` at once, and an ``async def`` its value, run to its end.

        Raises:
            RunningLoopError: in an event loop; ``await f.aio(...)`` is for that.
            ReadieError: what :meth:`spawn` and :meth:`Call.result <readie.Call.result>` raise.
        """
        if (stream := self._stream(*args, **kwargs)) is not None:
            return cast("R", stream)
        name = self.__wrapped__.__name__ if hasattr(self.__wrapped__, "__name__") else "f"
        refuse_in_running_loop(f"{name}(...)", f"await {name}.aio(...)")
        call = self.spawn(*args, **kwargs)
        try:
            return call.result()
        except KeyboardInterrupt:
            with contextlib.suppress(ReadieError):
                call.cancel()
            raise

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
        """Run remotely without blocking the event loop: ``await f.aio(x)``; ``async for`` for a generator function.

        A task that is cancelled cancels its call.
        """
        return self._stream(*args, **kwargs) or self._aio(*args, **kwargs)

    async def _aio(self, *args: P.args, **kwargs: P.kwargs) -> R:
        import asyncio  # noqa: PLC0415 - whoever awaits has it already

        call = await asyncio.to_thread(self.spawn, *args, **kwargs)
        try:
            return await call.aresult()
        except asyncio.CancelledError:
            with contextlib.suppress(ReadieError):
                await asyncio.to_thread(call.cancel)
            raise

    @property
    def map(self) -> "Mapping[R]":
        """Call it for each item of an iterable: ``f.map(items)``, in an event loop ``f.map.aio(items)``.

        See :class:`readie.mapping.Mapping` for the arguments.
        """
        from .mapping import Mapping  # noqa: PLC0415

        spawn: Any = self._of_here().spawn
        return Mapping(spawn)

    @property
    def starmap(self) -> "Mapping[R]":
        """Like :attr:`map`, for an iterable of tuples of arguments."""
        from .mapping import Mapping  # noqa: PLC0415

        spawn: Any = self._of_here().spawn
        return Mapping(lambda arguments: spawn(*_arguments(arguments)))

    def _stream(self, *args: P.args, **kwargs: P.kwargs) -> "Stream[Any] | None":
        """Return an iterator whose first step submits the call of a generator function, as it begins a local one."""
        from .stream import Stream, yields  # noqa: PLC0415 - as for the client

        if not yields(self.__wrapped__):
            return None
        return Stream(functools.partial(self._of_here().spawn, *args, **kwargs), owns=True)

    def _of_here(self) -> "RemoteFunction[P, R]":
        """Return a copy for calls that are sent later, perhaps after the end of the ``with`` block that this is in."""
        from .sessions import current_session  # noqa: PLC0415 - as for the client

        session = self._options.session or current_session()
        return self if session is self._options.session else self.options(session=session)

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

    @overload
    def __get__(self, instance: None, owner: type) -> "RemoteFunction[P, R]": ...

    @overload
    def __get__(
        self: "RemoteFunction[Concatenate[Any, Q], R]", instance: object, owner: type | None = None
    ) -> "RemoteFunction[Q, R]": ...

    def __get__(self, instance: object, owner: type | None = None) -> "RemoteFunction[Any, R]":
        """Bind a method to its object, a class method to its class."""
        if instance is None and not isinstance(self.__wrapped__, (classmethod, staticmethod)):
            return self
        bound = self.__wrapped__.__get__(instance, owner)
        return RemoteFunction(bound, self._options, self._client)

    def __reduce__(self) -> tuple[Any, ...]:
        # The plain function, by means every Python has: a sandbox need not know this class.
        return operator.getitem, ((self.__wrapped__,), 0)


def _arguments(item: Any) -> tuple[Any, ...]:
    try:
        return tuple(item)
    except TypeError:
        raise ConfigurationError(
            f"f.starmap(items) takes a tuple of arguments for each call, such as ({item!r:.40},), and got "
            f"{item!r:.40} ({type(item).__name__}); f.map(items) takes single arguments"
        ) from None


@overload
def remote(function: "classmethod[Any, P, R]", /) -> RemoteFunction[P, R]: ...


@overload
def remote(function: Callable[P, Coroutine[Any, Any, R]], /) -> RemoteFunction[P, R]: ...


@overload
def remote(function: Callable[P, R], /) -> RemoteFunction[P, R]: ...


@overload
def remote(**options: Unpack[RemoteOptions]) -> Callable[[Callable[P, R]], RemoteFunction[P, R]]: ...


def remote(function: Any = None, /, **options: Any) -> Any:
    """Make a function run remotely: ``@remote`` or ``@remote(timeout=60, ...)``.

    Of methods, put it above ``@classmethod`` and ``@staticmethod``. The object or class that a method belongs to
    travels with the call, as any argument does.

    Args:
        function: the function, when used bare.
        **options: fields of :class:`readie.options.Options`.

    Raises:
        ConfigurationError: an unknown option (names the nearest known one), a wrong value, or something not callable.
        InvalidRequestError: options that contradict each other.

    Example:
        ```python
        @remote(timeout=60, memory="2Gi", retries=2)
        def train(rows): ...
        ```
    """
    checked = Options.of(options)

    def decorate(function: Callable[P, R]) -> RemoteFunction[P, R]:
        if not callable(function) and not isinstance(function, classmethod):
            raise ConfigurationError(f"remote() decorates a function, not {type(function).__name__}")
        return RemoteFunction(function, checked)

    return decorate if function is None else decorate(function)
