"""What can't be pickled is named; what can comes back whole."""

import pickle
import threading

import cloudpickle
import pytest

from readie import remote
from readie.errors import SerializationError
from readie.pickling import dump_call, load_value
from readie.protocol.payload import Pickled, decode, encode


def test_the_argument_that_can_not_be_pickled_is_named() -> None:
    with pytest.raises(SerializationError, match="argument 1 can't be pickled"):
        dump_call(len, (1, threading.Lock()), {})
    with pytest.raises(SerializationError, match="argument 'lock' can't be pickled"):
        dump_call(len, (1,), {"lock": threading.Lock()})


def test_the_closure_variable_that_can_not_be_pickled_is_named() -> None:
    lock = threading.Lock()
    with pytest.raises(SerializationError, match="closure variable 'lock' can't be pickled"):
        dump_call(lambda: lock, (), {})


_lock = threading.Lock()


def test_the_global_variable_that_can_not_be_pickled_is_named() -> None:
    namespace = {"__name__": "__main__", "guard": _lock}
    exec("def guarded():\n    return guard", namespace)
    with pytest.raises(SerializationError, match="global variable 'guard' can't be pickled"):
        dump_call(namespace["guarded"], (), {})


def test_a_call_is_two_pickles() -> None:
    function, arguments, *_ = decode(dump_call(lambda value: value + 1, (1,), {"key": 2}))
    assert pickle.loads(function.data, buffers=function.buffers)(1) == 2
    assert pickle.loads(arguments.data, buffers=arguments.buffers) == ((1,), {"key": 2})


def test_a_recursive_remote_function_travels_as_the_plain_function() -> None:
    namespace: dict[str, object] = {"__name__": "__main__", "remote": remote}
    exec("@remote\ndef factorial(n):\n    return n * factorial(n - 1) if n else 1", namespace)
    function, *_ = decode(dump_call(namespace["factorial"].__wrapped__, (), {}))  # type: ignore[attr-defined]
    assert b"RemoteFunction" not in bytes(function.data)
    assert pickle.loads(function.data)(5) == 120


def test_a_large_buffer_is_not_in_the_pickle_and_comes_back_writable() -> None:
    value = bytearray(b"x" * 100_000)
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(pickle.PickleBuffer(value), protocol=5, buffer_callback=buffers.append)
    container = b"".join(encode([Pickled(data, [buffer.raw() for buffer in buffers])]))
    assert len(data) < 100
    loaded = load_value(container)
    loaded[0] = 7
    assert bytes(loaded[1:]) == bytes(value[1:])


def test_none_and_exceptions_are_values_too() -> None:
    for value in (None, ValueError("a value")):
        loaded = load_value(b"".join(encode([Pickled(cloudpickle.dumps(value))])))
        assert repr(loaded) == repr(value)
