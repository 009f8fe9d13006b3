"""Pickling of functions, arguments and results on the client's side.

A call's payload is two pickles, the function and ``(args, kwargs)``, and what goes with them; a result's is one. Large
buffers (arrays) travel beside the pickles, uncopied.
"""

import io
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, MappingProxyType
from typing import Any

import cloudpickle

from .errors import SerializationError
from .protocol.context import pack
from .protocol.payload import Buffer, Pickled, decode, encode
from .protocol.versions import differences, module_behind, versions_of

_NO_FILE = "<dynamic-code>"


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle's, which notes the ``modules`` of what it pickles as no more than a name."""

    def __init__(self, stream: io.BytesIO, buffers: list[pickle.PickleBuffer], modules: set[str]) -> None:
        super().__init__(stream, protocol=5, buffer_callback=buffers.append)
        self._modules = modules

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, CodeType):
            make, arguments = self.dispatch_table[CodeType](value)
            # cloudpickle leaves the file's name out, without which no traceback can show source lines.
            return make, tuple(value.co_filename if part == _NO_FILE else part for part in arguments)
        reduced = super().reducer_override(value)
        if reduced is NotImplemented and (name := module_behind(value)):
            self._modules.add(name)
        return reduced


def _pickled(value: object, modules: set[str]) -> Pickled:
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    _Pickler(stream, buffers, modules).dump(value)
    return Pickled(stream.getbuffer(), [buffer.raw() for buffer in buffers])


def _culprit(values: Mapping[str, object]) -> tuple[str, Exception] | None:
    for name, value in values.items():
        try:
            _pickled(value, set())
        except Exception as error:
            return name, error
    return None


def _variables(function: Callable[..., Any]) -> dict[str, object]:
    """Return what a function's pickle carries besides its code: closure cells and the globals it names."""
    code = getattr(function, "__code__", None)
    if code is None:
        return {}
    found: dict[str, object] = {}
    for name, cell in zip(code.co_freevars, getattr(function, "__closure__", None) or (), strict=False):
        try:
            found[f"closure variable {name!r}"] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    module = getattr(function, "__globals__", {})
    found |= {f"global variable {name!r}": module[name] for name in code.co_names if name in module}
    return found


@dataclass(frozen=True, slots=True)
class PickledCall:
    """A call's function and arguments, pickled."""

    function: Pickled
    arguments: Pickled
    modules: frozenset[str]
    """Of everything that the pickles hold no more than the name of."""

    def payload(
        self, environment: Mapping[str, str] = MappingProxyType({}), packed_modules: bytes = b""
    ) -> list[Buffer]:
        """Return the pieces of the call's payload.

        Args:
            environment: variables to set while the call runs.
            packed_modules: sources of the user's own modules, see :mod:`readie.project`.
        """
        about = pack(versions_of(self.modules), environment, packed_modules)
        return encode([self.function, self.arguments, *map(Pickled, about)])


def dump_call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Return the payload of a call with which nothing goes; raises what :func:`pickle_call` raises."""
    return b"".join(pickle_call(function, args, kwargs).payload())


def pickle_call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> PickledCall:
    """Pickle a call.

    Raises:
        SerializationError: names the argument or the variable that can't be pickled.
    """
    modules: set[str] = set()
    pickled_function = dump_function(function, modules)
    try:
        pickled_arguments = _pickled((tuple(args), dict(kwargs)), modules)
    except Exception as error:
        arguments = {f"argument {position}": value for position, value in enumerate(args)}
        arguments |= {f"argument {name!r}": value for name, value in kwargs.items()}
        name, cause = _culprit(arguments) or ("an argument", error)
        raise SerializationError(f"{name} can't be pickled: {type(cause).__name__}: {cause}") from cause
    return PickledCall(pickled_function, pickled_arguments, frozenset(modules))


def dump_function(function: Callable[..., Any], modules: set[str]) -> Pickled:
    """Pickle a function; adds to ``modules`` those of everything that it refers to by name.

    Raises:
        SerializationError: names the variable that can't be pickled.
    """
    try:
        return _pickled(function, modules)
    except Exception as error:
        name, cause = _culprit(_variables(function)) or (f"function {function!r}", error)
        raise SerializationError(f"{name} can't be pickled: {type(cause).__name__}: {cause}") from cause


def load_value(container: bytes | bytearray) -> Any:
    """Return the one object of a result's payload; its arrays are writable.

    Raises:
        SerializationError: it can't be unpickled here; names the packages of which the sandbox had other versions.
    """
    about: list[Pickled] = []
    try:
        pickled, *about = decode(container if isinstance(container, bytearray) else bytearray(container))
        return pickle.loads(pickled.data, buffers=pickled.buffers)  # noqa: S301 - the answer to the caller's own function
    except Exception as error:
        versions = json.loads(bytes(about[0].data)) if about else {}
        different = differences(versions, they="in the sandbox", we="here")
        raise SerializationError(
            f"can't be unpickled here: {type(error).__name__}: {error}{f' ({different})' if different else ''}"
        ) from error
