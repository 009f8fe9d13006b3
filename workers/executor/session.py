"""The globals that all functions of a session share."""

from __future__ import annotations

import builtins
import io
import os
import pickle
import signal
import sys
import types
from collections.abc import Mapping
from typing import Any

from cloudpickle import cloudpickle

from readie.protocol.payload import Pickled

_LIKE_VALUES = (type(None), bool, int, float, complex, str, bytes, tuple, frozenset, type, range)
"""Types whose instances are the same to a function when they are equal."""


def at_rest() -> bool:
    """Return whether nothing goes on here between calls: no thread of Python's but this one, no child, no timer."""
    if len(sys._current_frames()) > 1 or any(signal.getitimer(signal.ITIMER_REAL)):  # noqa: SLF001 - counts threads of every origin
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


class SessionGlobals:
    """One globals dict for the functions of all calls, as a notebook has one.

    It is the dict of the module ``__main__``, so that what calls define there can be pickled and found by name.
    """

    def __init__(self) -> None:
        main = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = builtins
        self._globals = main.__dict__
        self._ignored: set[str] = set()
        sys.modules["__main__"] = main

    def load(self, pickled: Pickled) -> Any:
        """Unpickle; functions that come along with their code get these globals."""
        return _Unpickler(self, pickled).load()

    def take_ignored(self) -> list[str]:
        """Return the names that came with another value than they have here, since this was asked last."""
        names, self._ignored = sorted(self._ignored), set()
        return names

    def make_function(self, code: types.CodeType, _own: object, *rest: Any) -> types.FunctionType:
        """Stand in for cloudpickle's."""
        return types.FunctionType(code, self._globals, *rest)

    def set_function_state(self, function: types.FunctionType, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
        """Stand in for cloudpickle's."""
        attributes, slots = state
        self._seed(slots["__globals__"])
        cloudpickle._function_setstate(function, (attributes, {**slots, "__globals__": {}}))  # noqa: SLF001

    def _seed(self, carried: Mapping[str, Any]) -> None:
        for name, value in carried.items():
            if name not in self._globals:
                self._globals[name] = value
            elif not _alike(self._globals[name], value):
                self._ignored.add(name)


class _Unpickler(pickle.Unpickler):
    def __init__(self, session: SessionGlobals, pickled: Pickled) -> None:
        super().__init__(io.BytesIO(pickled.data), buffers=pickled.buffers)
        self._stand_ins = {"_make_function": session.make_function, "_function_setstate": session.set_function_state}

    def find_class(self, module: str, name: str, /) -> Any:
        if module == "cloudpickle.cloudpickle" and name in self._stand_ins:
            return self._stand_ins[name]
        return super().find_class(module, name)


def _alike(here: object, carried: object) -> bool:
    if here is carried:
        return True
    if type(here) is not type(carried):
        return False
    if isinstance(here, types.FunctionType) and isinstance(carried, types.FunctionType):
        return here.__code__ == carried.__code__
    if isinstance(here, _LIKE_VALUES):
        try:
            return bool(here == carried)
        except Exception:  # __eq__ of what is in a tuple is user code
            return False
    return False
