"""Pickling of functions, arguments and results on the client's side.

A call's payload is two pickles, the function and ``(args, kwargs)``; a result's is one. Large buffers (arrays) travel
beside the pickles, uncopied.
"""

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cloudpickle

from .errors import SerializationError
from .protocol.payload import Pickled, decode, encode


def _pickled(value: object) -> Pickled:
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    cloudpickle.Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(value)
    return Pickled(stream.getbuffer(), [buffer.raw() for buffer in buffers])


def _culprit(values: Mapping[str, object]) -> tuple[str, Exception] | None:
    for name, value in values.items():
        try:
            _pickled(value)
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


def dump_call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Return a call's payload.

    Raises:
        SerializationError: names the argument or the variable that can't be pickled.
    """
    try:
        pickled_function = _pickled(function)
    except Exception as error:
        name, cause = _culprit(_variables(function)) or (f"function {function!r}", error)
        raise SerializationError(f"{name} can't be pickled: {type(cause).__name__}: {cause}") from cause
    try:
        pickled_arguments = _pickled((tuple(args), dict(kwargs)))
    except Exception as error:
        arguments = {f"argument {position}": value for position, value in enumerate(args)}
        arguments |= {f"argument {name!r}": value for name, value in kwargs.items()}
        name, cause = _culprit(arguments) or ("an argument", error)
        raise SerializationError(f"{name} can't be pickled: {type(cause).__name__}: {cause}") from cause
    return b"".join(encode([pickled_function, pickled_arguments]))


def load_value(container: bytes | bytearray) -> Any:
    """Return the one object of a result's payload; its arrays are writable.

    Raises:
        Exception: whatever unpickling raises.
    """
    (pickled,) = decode(container if isinstance(container, bytearray) else bytearray(container))
    return pickle.loads(pickled.data, buffers=pickled.buffers)  # noqa: S301 - the answer to the caller's own function
