"""Goes from a function to everything it reaches, and gathers names."""

import sys
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import FunctionType, ModuleType, NoneType
from typing import Any, Final

from .bytecode import read_code
from .literals import Kind, named_by
from .objects import MAIN_MODULES, bases, class_dict, elements, fields, module_dict, origin
from .reading import Call, Reading, nested
from .source import read_function, read_module

_BUDGET: Final = 1000
"""What a scan may spend: 1 for an object, more for code that is read."""
_READING_COST: Final = 5
_MAX_NAME_LENGTH: Final = 200
_PLAIN = frozenset(map(id, (NoneType, bool, int, float, complex, str, bytes, bytearray)))
_TRANSPARENT = frozenset({"builtins", "functools", "types", "typing"})
"""Modules whose objects only hold others: containers, methods, properties, partials, caches, ``list[X]``."""
_NAMELESS = sys.stdlib_module_names | {"readie"} | MAIN_MODULES


class Walk:
    """One scan. ``imports`` and ``named`` hold what it found, also when it could not look everywhere."""

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.named: defaultdict[Kind, set[str]] = defaultdict(set)
        self._queue: deque[tuple[object, bool]] = deque()
        self._seen: dict[tuple[int, bool], object] = {}
        self._budget = _BUDGET

    def run(self, function: object) -> None:
        """Visit the function and what it reaches, nearest first, up to a limit."""
        self._follow([function])
        while self._queue and self._budget > 0:
            self._budget -= 1
            # The user's objects may do anything, and a hint is only a hint: what fails is passed over.
            with suppress(Exception):
                self._visit(*self._queue.popleft())

    def _follow(self, targets: Iterable[object], *, held: bool = False) -> None:
        """Visit objects later. ``held``: by an installed module's object, so that only the user's code in it counts."""
        for target in targets:
            if id(type(target)) not in _PLAIN and (id(target), held) not in self._seen:
                self._seen[id(target), held] = target  # keeps it alive, so that its id stays its own
                self._queue.append((target, held))

    def _visit(self, target: Any, held: bool) -> None:
        kind, found = type(target), origin(target)
        transparent = found.module in _TRANSPARENT
        if not (found.is_own or held):
            self._note(found.dotted)
        # The type is asked, as isinstance would also ask the object for its __class__.
        if issubclass(kind, ModuleType):
            if found.is_own:
                self._note(found.module)
                self._read_module(module_dict(target))
        elif issubclass(kind, type):
            if found.is_own:
                self._follow([kind, *bases(target), *elements(class_dict(target))])
        elif kind is FunctionType:
            cells = _cells(target)
            for group in (cells, target.__dict__, target.__defaults__, target.__kwdefaults__):
                self._follow(elements(group), held=not found.is_own)
            if found.is_own:
                self._read_function(target, cells)
        else:
            self._follow(elements(target), held=held)
            if found.is_own:
                self._follow([kind])
            if found.is_own or transparent or found.module.partition(".")[0] not in sys.stdlib_module_names:
                inside = fields(target)
                if "__wrapped__" in inside and not found.is_own:  # it stands for the function, as RemoteFunction does
                    inside = {"__wrapped__": inside["__wrapped__"]}
                self._follow(inside.values(), held=not found.is_own and (held or not transparent))

    def _read_function(self, function: FunctionType, cells: dict[str, object]) -> None:
        code, namespace = function.__code__, function.__globals__
        self._budget -= _READING_COST
        used = {name for each in nested(code) for name in each.co_names}
        known = {name: namespace[name] for name in used if name in namespace} | cells
        self._apply(read_function(code, namespace) or read_code(code), namespace, known)
        self._follow([function.__annotations__])  # last, as from Python 3.14 on this may fail

    def _read_module(self, namespace: dict[str, Any]) -> None:
        file = namespace.get("__file__")
        if type(file) is str and file.endswith(".py"):
            self._budget -= _READING_COST
            self._apply(read_module(file, namespace), namespace, {})

    def _apply(self, reading: Reading, namespace: Mapping[str, Any], known: Mapping[str, object]) -> None:
        """Turn what code says into names. ``known``: the globals and closure variables it uses."""
        package = namespace.get("__package__") or ""
        aliases: dict[str, str] = {}
        for module, level, name, bound in reading.imports:
            base = _absolute(module, level, package)
            full = base if name in {None, "*"} else f"{base}.{name}"
            aliases[bound] = bound if name is None and full.startswith(f"{bound}.") else full
            self._import(full)
        for root, *rest in reading.chains:
            if root in aliases:
                self._import(".".join([aliases[root], *rest]))
            elif root in known:
                self._follow_chain(known[root], rest)
        for call in reading.calls:
            root, *rest = call.callee
            if root in known and root not in aliases:
                root = origin(known[root]).dotted
            self._apply_call(call, ".".join([aliases.get(root, root), *rest]), package)

    def _apply_call(self, call: Call, callee: str, package: str) -> None:
        if callee in {"importlib.import_module", "__import__"} and (text := call.literal(0, "name")):
            name = text.lstrip(".")
            self._import(_absolute(name, len(text) - len(name), call.literal(1, "package") or package))
        for kind, name in named_by(callee, call):
            if len(name) <= _MAX_NAME_LENGTH:
                self.named[kind].add(name)

    def _import(self, full: str) -> None:
        """Note a name that code imports; what it means in an own module that is loaded is followed."""
        self._note(full)
        root, *rest = full.split(".")
        if root in sys.modules and origin(sys.modules[root]).is_own:
            self._follow_chain(sys.modules[root], rest)

    def _follow_chain(self, target: Any, names: list[str]) -> None:
        """Follow a dotted read through own modules as far as they go."""
        self._follow([target])
        if not names or not issubclass(type(target), ModuleType):
            return
        found = origin(target)
        if not found.is_own:
            self._note(".".join([found.module, *names]))
        elif names[0] in (namespace := module_dict(target)):
            self._follow_chain(namespace[names[0]], names[1:])

    def _note(self, full: str) -> None:
        names = full.split(".")
        if names[0] not in _NAMELESS and len(full) <= _MAX_NAME_LENGTH and all(map(str.isidentifier, names)):
            self.imports.add(full)


def _cells(function: FunctionType) -> dict[str, object]:
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # an empty cell
            found[name] = cell.cell_contents
    return found


def _absolute(module: str, level: int, package: str) -> str:
    if not level:
        return module
    base = package.rsplit(".", level - 1)[0]
    return f"{base}.{module}" if module else base
