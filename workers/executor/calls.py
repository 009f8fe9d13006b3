"""Running one call: its payload in, its result out. The only place where user bytes are unpickled."""

from __future__ import annotations

import io
import json
import pickle
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

import cloudpickle

from readie.protocol import context as call_context
from readie.protocol import payload
from readie.protocol.context import Context
from readie.protocol.exceptions import reduce_exception
from readie.protocol.payload import Buffer, Pickled
from readie.protocol.versions import differences, module_behind, versions_of
from workers.executor import context, running, wire
from workers.executor.values import Values

ErrorCode = Literal["raised", "serialization", "deserialization"]

_MAX_NAME_CHARACTERS = 1 << 10
_MAX_BASES = 64
_MAX_MESSAGE_CHARACTERS = 64 << 10
_MAX_TRACEBACK_CHARACTERS = 256 << 10


@dataclass(frozen=True)
class Ended:
    """How a call ended: the RESULT frame's object and the VALUE frame's pieces."""

    result: dict[str, object]
    value: Sequence[Buffer]


class _UnpicklableYieldError(Exception):
    """What a generator yielded can't be pickled; the cause says why."""


def run(container: bytearray, values: Values | None = None, load: Callable[[Pickled], Any] | None = None) -> Ended:
    """Unpickle the call in ``container``, run it and pickle its value or exception; never raises.

    ``values`` gets what a generator yields, where that is wanted. ``load`` unpickles; a session has one of its own.

    ``BaseException`` of the function, ``SystemExit`` included, is an outcome. Seconds of the three phases are
    measured here, so the work of pickling is not mistaken for the function's own.
    """
    clock = _PhaseClock()
    try:
        function, arguments, *rest = payload.decode(container)
        goes_with_it = call_context.unpack([item.data for item in rest])
    except ValueError as error:
        clock.end_phase("load_seconds")
        return _failed("deserialization", error, clock)
    with context.environment(goes_with_it.environment):
        context.take_modules(goes_with_it.modules)
        return _run((function, arguments), goes_with_it, values, load or _load, clock)


def _run(
    pickles: Sequence[Pickled],
    goes_with_it: Context,
    values: Values | None,
    load: Callable[[Pickled], Any],
    clock: _PhaseClock,
) -> Ended:
    try:
        try:
            function, (arguments, keywords) = map(load, pickles)
        finally:
            clock.end_phase("load_seconds")
    except BaseException as error:  # unpickling runs imports, which may raise anything
        _name_versions(error, goes_with_it.versions)
        return _failed("deserialization", error, clock)
    try:
        try:
            value = running.to_its_end(function(*arguments, **keywords), _stream_to(values))
        finally:
            clock.end_phase("execute_seconds")
    except _UnpicklableYieldError as error:
        return _failed("serialization", error.__cause__ or error, clock, f"{error}: ")
    except BaseException as error:  # the outcome of the user's function, whatever it is
        return _failed("raised", error, clock)
    try:
        try:
            pieces = _dump(value)
        finally:
            clock.end_phase("dump_seconds")
    except BaseException as error:  # __reduce__ and __getstate__ are user code
        return _failed("serialization", error, clock, f"the result, a {_class_name(value)}, can't be pickled: ")
    return Ended({"outcome": "ok", **clock.seconds, "error": None}, pieces)


def _stream_to(values: Values | None) -> tuple[running.Wanted, running.Emit] | None:
    if values is None:
        return None

    def emit(value: object) -> None:
        try:
            pieces = _dump(value)
        except BaseException as error:  # as for the result
            raise _UnpicklableYieldError(f"a yielded value, a {_class_name(value)}, can't be pickled") from error
        values.send(pieces)

    return values.wanted, emit


class _PhaseClock:
    def __init__(self) -> None:
        self.seconds = {"load_seconds": 0.0, "execute_seconds": 0.0, "dump_seconds": 0.0}
        self._began = time.perf_counter()

    def end_phase(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = now - self._began
        self._began = now


def _name_versions(error: BaseException, at_client: Mapping[str, str]) -> None:
    """Say in an error of unpickling which packages the client has in another version."""
    different = differences(at_client, they="at the client", we="in the sandbox")
    if not different:
        return
    if len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]} ({different})",)
        if isinstance(error, ImportError):
            error.msg = error.args[0]
    else:
        error.add_note(different)


def _failed(code: ErrorCode, error: BaseException, clock: _PhaseClock, prefix: str = "") -> Ended:
    # Not assigned: an exception may refuse that, as those of frozen dataclasses do.
    error = error.with_traceback(_without_executor_frames(error.__traceback__))
    described = {
        "code": code,
        "type": _shortened(type(error).__qualname__, _MAX_NAME_CHARACTERS),
        "module": _shortened(str(type(error).__module__), _MAX_NAME_CHARACTERS),
        "bases": [
            _shortened(f"{kind.__module__}.{kind.__qualname__}", _MAX_NAME_CHARACTERS)
            for kind in type(error).__mro__[:_MAX_BASES]
        ],
        "message": _shortened(prefix + _message(error), _MAX_MESSAGE_CHARACTERS),
        "traceback": _shortened(_traceback_text(error), _MAX_TRACEBACK_CHARACTERS),
    }
    pieces = _dump_exception(error)
    if code == "raised":
        clock.end_phase("dump_seconds")
    return Ended({"outcome": "error", **clock.seconds, "error": described}, pieces)


def _load(pickled: Pickled) -> Any:
    return pickle.loads(pickled.data, buffers=pickled.buffers)  # noqa: S301 - this sandbox is the place for it


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle's, with exceptions that need not be called with their args."""

    def __init__(self, stream: io.BytesIO, buffers: list[pickle.PickleBuffer], *, with_chain: bool) -> None:
        super().__init__(stream, protocol=5, buffer_callback=buffers.append)
        self._with_chain = with_chain
        self.modules: set[str] = set()
        """Of what was pickled as no more than its name."""

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, BaseException):
            reduced = reduce_exception(value, with_chain=self._with_chain)
            if reduced is not None:
                return reduced
        reduced = super().reducer_override(value)
        if reduced is NotImplemented and (name := module_behind(value)):
            self.modules.add(name)
        return reduced


def _dump(value: object, *, with_chain: bool = True) -> list[Buffer]:
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    pickler = _Pickler(stream, buffers, with_chain=with_chain)
    pickler.dump(value)
    versions = Pickled(json.dumps(versions_of(pickler.modules)).encode())
    pieces = payload.encode([Pickled(stream.getbuffer(), [buffer.raw() for buffer in buffers]), versions])
    if (size := payload.total_size(pieces)) > wire.MAX_FRAME_BYTES:
        raise ValueError(f"{size} pickled bytes are above the limit of {wire.MAX_FRAME_BYTES} bytes")
    return pieces


def _dump_exception(error: BaseException) -> list[Buffer]:
    """Return the pickled exception, or nothing when it cannot be pickled or would not unpickle at the caller."""
    for with_chain in (True, False):
        try:
            pieces = _dump(error, with_chain=with_chain)
            pickled, *_ = payload.decode(b"".join(pieces))
            if isinstance(_load(pickled), BaseException):
                return pieces
        except BaseException:  # noqa: S112 - an exception class with a broken __reduce__ is common
            continue
    return []


def _without_executor_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that is the user's: without ours, and without the event loop that we ran."""
    while trace is not None and _is_ours(str(trace.tb_frame.f_globals.get("__name__"))):
        trace = trace.tb_next
    return trace


def _is_ours(module: str) -> bool:
    return module.startswith(("workers.executor.", "asyncio."))


def _traceback_text(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except BaseException as failure:  # __str__ and __notes__ are user code
        return f"{_class_name(error)} (its traceback can't be shown: {type(failure).__name__})\n"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as failure:  # __str__ is user code
        return f"(the message can't be shown: {type(failure).__name__})"


def _class_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _shortened(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
