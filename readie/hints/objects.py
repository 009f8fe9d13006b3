"""Looks at objects without running their code: no ``__getattr__``, no property, no ``__class__``, no ``__hash__``."""

import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from types import FunctionType, GetSetDescriptorType, MappingProxyType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple

_MAX_ELEMENTS = 256
MAIN_MODULES = frozenset({"__main__", "__mp_main__"})
_NOT_OWN = sys.stdlib_module_names | {"readie"}
_INSTALLED_FOLDERS = frozenset({"site-packages", "dist-packages"})
_STORED = (MemberDescriptorType, GetSetDescriptorType)
_MODULE_DICT: Any = vars(ModuleType)["__dict__"]
_TYPE: Any = vars(type)


def module_dict(module: ModuleType) -> dict[str, Any]:
    namespace: dict[str, Any] = _MODULE_DICT.__get__(module)
    return namespace


def class_dict(cls: type) -> Mapping[str, Any]:
    namespace: Mapping[str, Any] = _TYPE["__dict__"].__get__(cls)
    return namespace


def bases(cls: type) -> tuple[type, ...]:
    classes: tuple[type, ...] = _TYPE["__bases__"].__get__(cls)
    return classes


def fields(instance: object) -> dict[str, Any]:
    """Return what an instance holds: its ``__dict__``, its slots, the members of a built-in type."""
    found: dict[str, Any] = {}
    for cls in _TYPE["__mro__"].__get__(type(instance)):
        for name, descriptor in class_dict(cls).items():
            if type(descriptor) is GetSetDescriptorType and name == "__dict__":
                found |= descriptor.__get__(instance)
            elif type(descriptor) is MemberDescriptorType:
                try:
                    found[name] = descriptor.__get__(instance)
                except AttributeError:  # an empty slot
                    continue
    return found


def elements(container: Any) -> Iterator[Any]:
    """Yield the first elements of a built-in container, the values of a mapping; nothing of anything else."""
    kind = type(container)
    found: Any = ()
    if issubclass(kind, dict):
        found = dict.values(container)
    elif kind is MappingProxyType:
        found = container.values()
    for base in (list, tuple, set, frozenset):
        if issubclass(kind, base):
            found = base.__iter__(container)
    return islice(found, _MAX_ELEMENTS)


class Origin(NamedTuple):
    """Where something was defined."""

    module: str
    qualname: str
    file: object

    @property
    def dotted(self) -> str:
        """The full dotted name, or the outermost function's for something inside a function."""
        name = self.qualname.partition(".<locals>")[0]
        return f"{self.module}.{name}" if name else self.module

    @property
    def is_own(self) -> bool:
        """Whether it is the user's own: not of the standard library, of Readie or of an installed distribution."""
        if self.module.partition(".")[0] in _NOT_OWN:
            return False
        if self.module in MAIN_MODULES:  # its file may be an installed tool, as in `python -m ipykernel_launcher`
            return True
        return type(self.file) is not str or _INSTALLED_FOLDERS.isdisjoint(self.file.replace("\\", "/").split("/"))


def origin(target: Any) -> Origin:
    """Return the origin of a module, class or function, or else of the instance's class."""
    kind = type(target)
    stored: list[Any] = [class_dict(kind).get(name) for name in ("__module__", "__qualname__")]
    if issubclass(kind, ModuleType):
        namespace = module_dict(target)
        return Origin(_text(namespace.get("__name__")), "", namespace.get("__file__"))
    if kind is FunctionType:
        # Not __module__ and __qualname__, which functools.wraps changes.
        code = target.__code__
        return Origin(_text(target.__globals__.get("__name__", "")), code.co_qualname, code.co_filename)
    if issubclass(kind, type):
        module, qualname = (_text(_TYPE[name].__get__(target)) for name in ("__module__", "__qualname__"))
    elif all(type(descriptor) in _STORED for descriptor in stored):  # functions of C extensions
        module, qualname = (_text(descriptor.__get__(target)) for descriptor in stored)
    else:
        return origin(kind)
    loaded: Any = sys.modules.get(module)
    return Origin(
        module, qualname, module_dict(loaded).get("__file__") if issubclass(type(loaded), ModuleType) else None
    )


def _text(value: object) -> str:
    """Return a name as it is stored; what claims to have no proper name is taken for a built-in."""
    return value if type(value) is str else "builtins"
