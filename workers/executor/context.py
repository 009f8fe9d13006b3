"""What goes with a call, put into effect in this process: its environment variables and the user's own modules."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

from readie.protocol.context import ModuleSource


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while; the next call of a session finds what was there before."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def take_modules(modules: Iterable[ModuleSource]) -> None:
    """Let the modules be imported from now on; one whose source has changed since an earlier call is imported anew."""
    for module in modules:
        finder = _winning if module.wins else _fallback
        if finder not in sys.meta_path:
            sys.meta_path.insert(0 if finder is _winning else len(sys.meta_path), finder)
        former = finder.modules.get(module.name)
        finder.modules[module.name] = module
        if former is not None and former.source != module.source and _is_ours(sys.modules.get(module.name)):
            del sys.modules[module.name]


def _is_ours(module: ModuleType | None) -> bool:
    return isinstance(getattr(module, "__loader__", None), _Loader)


class _Loader(InspectLoader):
    """Makes a module of its source. Tracebacks and ``inspect`` find the source through it."""

    def __init__(self, module: ModuleSource) -> None:
        self._module = module

    def get_source(self, fullname: str) -> str:  # noqa: ARG002 - a loader's interface
        return self._module.source

    def is_package(self, fullname: str) -> bool:  # noqa: ARG002
        return self._module.is_package

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002
        return compile(self._module.source, self._module.file, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    """Finds the modules that came with calls."""

    def __init__(self) -> None:
        self.modules: dict[str, ModuleSource] = {}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        module = self.modules.get(fullname)
        if module is None:
            return None
        spec = importlib.util.spec_from_loader(fullname, _Loader(module), origin=module.file)
        if spec is not None:
            spec.has_location = True  # the module says where it is from
        return spec


_winning = _Finder()
"""Stands before every other finder."""
_fallback = _Finder()
"""Stands behind them: what the flavor has of these names is used."""
