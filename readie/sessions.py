"""Sessions: calls that share one sandbox and its globals."""

import asyncio
import contextlib
import dataclasses
import re
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from .errors import ConfigurationError, PreconditionError
from .options import Options, RemoteOptions

if TYPE_CHECKING:
    from .client import Client
    from .protocol.call import SessionUse
    from .protocol.envelope import Report

DEFAULT_IDLE_TTL_SECONDS: Final = 300.0
_MOST_TTL_SECONDS: Final = 1e9

_entered: ContextVar[tuple["Session", ...]] = ContextVar("readie_sessions", default=())


def current_session() -> "Session | None":
    """Return the session of the innermost ``with`` block around this code."""
    sessions = _entered.get()
    return sessions[-1] if sessions else None


class Session:
    """A sandbox that stays from call to call. Made by :func:`readie.session` or :func:`readie.get_session`.

    Calls made inside ``with session:`` (or ``async with``) run in it, and so do those of
    ``function.options(session=session)``. They run one at a time, in the order in which they come from any process.
    Their functions share one globals dict. Safe to use from several threads.

    Attributes:
        id: unique; :func:`readie.get_session` attaches to the session by it from any process.

    Example:
        ```python
        session = readie.session()
        mean.options(session=session)(rows)
        session.close()
        ```
    """

    def __init__(
        self,
        session_id: str,
        options: Options,
        *,
        idle_ttl: float,
        restart_on_loss: bool,
        attached: bool,
        client: "Client | None" = None,
    ) -> None:
        self.id = session_id
        self._options = options
        self._idle_ttl = idle_ttl
        self._restart_on_loss = restart_on_loss
        self._attached = attached
        self._client = client
        # What follows is guarded by _lock.
        self._lock = threading.Lock()
        self._sandbox = ""
        self._used = False
        self._warned: set[str] = set()

    def __repr__(self) -> str:
        return f"<readie.Session {self.id}>"

    def __enter__(self) -> Self:
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _entered.set(_entered.get()[:-1])
        if not self._attached:
            # An error of the block is what its caller wants to see.
            with contextlib.suppress(Exception) if error is not None else contextlib.nullcontext():
                self.close()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _entered.set(_entered.get()[:-1])
        if not self._attached:
            with contextlib.suppress(Exception) if error is not None else contextlib.nullcontext():
                await self.aclose()

    def get(self, name: str) -> Any:
        """Return the value of a global of the session.

        Raises:
            NameError: it has none of that name.
            SessionExpiredError, SessionLostError: the session has ended.
        """
        return self._call(_get, name)

    def set(self, /, **values: Any) -> None:
        """Set globals of the session, whether it has them or not: ``session.set(rows=rows, limit=10)``."""
        self._call(_set, values)

    def run(self, source: str) -> Any:
        """Run Python source in the session's globals, as a notebook runs a cell.

        Returns:
            The value of its last line if that is an expression, else ``None``.
        """
        return self._call(_run, source)

    async def aget(self, name: str) -> Any:
        """Like :meth:`get`, without blocking the event loop."""
        return await asyncio.to_thread(self.get, name)

    async def aset(self, /, **values: Any) -> None:
        """Like :meth:`set`, without blocking the event loop."""
        await asyncio.to_thread(lambda: self.set(**values))

    async def arun(self, source: str) -> Any:
        """Like :meth:`run`, without blocking the event loop."""
        return await asyncio.to_thread(self.run, source)

    def close(self) -> bool:
        """End the session: its sandbox is gone within a second, and calls that run or wait in it end.

        Returns:
            Whether it was open.

        Raises:
            ClusterUnavailableError: Redis can't be reached.
        """
        with self._lock:
            used = self._used
        if not used and not self._attached:
            return False
        return self._client_or_default().close_session(self.id, may_open=not self._attached)

    async def aclose(self) -> bool:
        """Like :meth:`close`, without blocking the event loop."""
        return await asyncio.to_thread(self.close)

    def options_for(self, options: Options) -> Options:
        """Return how a call of a function with these options is to run here.

        Raises:
            PreconditionError: the function asks for another start than the session.
        """
        own = self._options
        filled = {
            name: getattr(own, name)
            for name, default in _OPENING.items()
            if getattr(options, name) == default and getattr(own, name) != default
        }
        pin, opted_out = options.checkpoint_id, options.disable_optimized_execution
        if (pin and own.disable_optimized_execution) or (opted_out and own.checkpoint_id):
            wants = f"checkpoint_id={pin!r}" if pin else "disable_optimized_execution=True"
            has = f"checkpoint_id={own.checkpoint_id!r}" if own.checkpoint_id else "disable_optimized_execution=True"
            raise PreconditionError(f"session {self.id} is opened with {has}, and the call has {wants}")
        return dataclasses.replace(options, **filled)

    def use(self, options: Options) -> "SessionUse":
        """Return what a call of a function with these options says of this session."""
        from .protocol.call import SessionUse  # noqa: PLC0415 - at the first call, as the rest of the client

        with self._lock:
            self._used = True
            sandbox = "" if self._restart_on_loss else self._sandbox
        return SessionUse(
            id=self.id,
            idle_ttl_seconds=self._idle_ttl,
            may_open=not self._attached,
            restart_on_loss=self._restart_on_loss,
            sandbox=sandbox,
            checkpoint_id=options.checkpoint_id,
            disable_optimized_execution=options.disable_optimized_execution,
        )

    def learn(self, report: "Report") -> None:
        """Take note of where a call of this session ran: no other sandbox is this session from then on."""
        if report.sandbox is not None and report.session_id == self.id:
            with self._lock:
                self._sandbox = self._sandbox or report.sandbox

    def warn_of(self, ignored: tuple[str, ...]) -> None:
        """Warn, once for each name, that globals which came with a function were ignored."""
        with self._lock:
            new = [name for name in ignored if name not in self._warned]
            self._warned.update(new)
        if new:
            warnings.warn(
                f"session {self.id} has its own {', '.join(new)}, which differ{'s' * (len(new) == 1)} from what came "
                f"with the function and stay{'s' * (len(new) == 1)}; session.set(name=value) changes that",
                stacklevel=5,
            )

    def _client_or_default(self) -> "Client":
        from .client import default_client  # noqa: PLC0415 - see use()

        return self._client or default_client()

    def _call(self, function: Callable[..., Any], *args: Any) -> Any:
        from .remote_function import RemoteFunction  # noqa: PLC0415 - it imports this module

        name = f"session.{function.__name__.removeprefix('_')}"
        return RemoteFunction(function, Options(name=name, session=self), self._client)(*args)


_OPENING: Final = {
    field.name: field.default
    for field in dataclasses.fields(Options)
    if field.name in {"flavor", "checkpoint_id", "disable_optimized_execution", "memory", "cpu", "gpu"}
}
"""Options that a session is opened with, with their defaults."""


def session(
    id: str | None = None,  # noqa: A002 - what it is to its user
    *,
    idle_ttl: float = DEFAULT_IDLE_TTL_SECONDS,
    restart_on_loss: bool = False,
    **options: Unpack[RemoteOptions],
) -> Session:
    """Return a session, which opens with its first call.

    Args:
        id: up to 64 letters, digits, ``_`` and ``-``. If one of that id is open, calls go there. Default: a new id.
        idle_ttl: seconds without a call after which it ends.
        restart_on_loss: when its worker or sandbox died, start afresh (``call.report().restarted`` says why) instead of
            raising :class:`~readie.SessionLostError`.
        **options: what its sandbox is opened with: ``checkpoint_id``, ``disable_optimized_execution``, ``flavor``,
            ``memory``, ``cpu``, ``gpu``.

    Raises:
        ConfigurationError: a wrong value.
        InvalidRequestError: options that contradict each other.

    Example:
        ```python
        with readie.session(idle_ttl=600):
            load(rows)
            print(mean())
        ```
    """
    if not isinstance(idle_ttl, (int, float)) or isinstance(idle_ttl, bool) or not 0 < idle_ttl <= _MOST_TTL_SECONDS:
        raise ConfigurationError(
            f"idle_ttl={idle_ttl!r}: give seconds, more than 0 and at most {_MOST_TTL_SECONDS:.0e}"
        )
    if not isinstance(restart_on_loss, bool):
        raise ConfigurationError(f"restart_on_loss={restart_on_loss!r}: give True or False")
    if other := options.keys() - _OPENING.keys():
        raise ConfigurationError(
            f"session() has no option {min(other)!r}; known: idle_ttl, restart_on_loss, {', '.join(_OPENING)}"
        )
    return Session(
        uuid.uuid4().hex if id is None else _checked_id(id),
        Options.of(options),
        idle_ttl=float(idle_ttl),
        restart_on_loss=restart_on_loss,
        attached=False,
    )


def get_session(id: str) -> Session:  # noqa: A002 - what it is to its user
    """Return the session of that id, which any process opened. Never opens one: calls raise where there is none.

    Leaving its ``with`` block does not close it.

    Raises:
        ConfigurationError: no session can have such an id.

    Example:
        ```python
        mean.options(session=readie.get_session("of-the-report"))()
        ```
    """
    return Session(
        _checked_id(id),
        Options(),
        idle_ttl=DEFAULT_IDLE_TTL_SECONDS,
        restart_on_loss=False,
        attached=True,
    )


def _checked_id(session_id: object) -> str:
    if not isinstance(session_id, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", session_id):
        raise ConfigurationError(f"id={session_id!r}: give 1 to 64 letters, digits, '_' and '-'")
    return session_id


def _functions() -> Iterator[Callable[..., Any]]:
    # Made in here, so that their code travels: what a sandbox would import by name has other globals than the session.
    def _get(name: str) -> Any:
        try:
            return globals()[name]
        except KeyError:
            raise NameError(f"the session has no global {name!r}") from None

    def _set(values: dict[str, Any]) -> None:
        globals().update(values)

    def _run(source: str) -> Any:
        import ast  # noqa: PLC0415

        tree = ast.parse(source, "<session>")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "<session>", "exec"), globals())  # noqa: S102 - it is what this is for
        if isinstance(last, ast.Expr):
            return eval(compile(ast.Expression(last.value), "<session>", "eval"), globals())  # noqa: S307
        return None

    yield from (_get, _set, _run)


_get, _set, _run = _functions()
