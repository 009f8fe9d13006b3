"""The user's own project: which of its modules a call needs, and their sources, which travel with the call.

Own is what lies neither in the standard library nor below a ``site-packages`` folder. Modules are found as an import
would find them and read as text: no code of theirs runs here.
"""

import ast
import functools
import importlib.util
import os
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Final, NamedTuple

from .hints.objects import MAIN_MODULES, Origin
from .protocol.context import ModuleSource, pack_modules

_MOST_MODULES: Final = 2000
_NEVER: Final = sys.stdlib_module_names | {"readie"}


class Travelling(NamedTuple):
    """What of the user's project goes with a call."""

    modules: tuple[str, ...] = ()
    """Names, sorted."""
    packed: bytes = b""
    """Their sources, as the executor takes them."""
    imports: tuple[str, ...] = ()
    """What their top level imports besides each other: importing them needs it."""


class _Read(NamedTuple):
    """What one module's file says."""

    source: str
    imports: tuple[str, ...]
    """Everything it imports anywhere, absolute, with the names taken from modules."""
    at_top: tuple[str, ...]
    """What of it is imported when the module is."""


def travelling(names: Iterable[str], *, include: Collection[str] = (), exclude: Collection[str] = ()) -> Travelling:
    """Return the own modules behind names, all own modules these import, and the packages they are in.

    Args:
        names: full dotted names, of modules or of things in them.
        include: modules, each with those below it, that travel in any case, installed or not, and win in the sandbox.
        exclude: modules, each with those below it, that stay here.
    """
    found: dict[str, tuple[str, bool, bool, int]] = {}
    imports: set[str] = set()
    wanted = [*names, *(name for root in include for name in _below(root))]
    seen: set[str] = set()
    while wanted and len(found) < _MOST_MODULES:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        for module, spec in _specs(name):
            forced = _covers(include, module)
            if not (forced or _is_own(module, spec)):
                if any(root.startswith(f"{module}.") for root in include):
                    continue
                break
            if module in found or _covers(exclude, module):
                continue
            origin = spec.origin or ""
            # A folder without __init__.py is a package too, with nothing to read.
            is_package = spec.submodule_search_locations is not None
            if not origin.endswith(".py") and not (is_package and origin in {"", "namespace"}):
                continue
            changed_ns = _changed_ns(origin)
            found[module] = origin, is_package, forced, changed_ns
            read = _read(module, origin, is_package, changed_ns)
            imports.update(read.at_top)
            wanted += read.imports
    key = tuple((module, *found[module]) for module in sorted(found))
    foreign = {
        name
        for name in imports
        if name.partition(".")[0] not in _NEVER and not any(part in found for part in (name, *_parents(name)))
    }
    return Travelling(tuple(sorted(found)), _packed(key), tuple(sorted(foreign)))


def _covers(roots: Iterable[str], module: str) -> bool:
    return any(module == root or module.startswith(f"{root}.") for root in roots)


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _specs(name: str) -> Iterator[tuple[str, ModuleSpec]]:
    """Yield the module that a dotted name begins with, and those below it, as far as the name names modules."""
    path: list[str] | None = None
    for module in (*_parents(name), name):
        spec = _find(module, path)
        if spec is None:
            return
        yield module, spec
        if spec.submodule_search_locations is None:
            return
        path = list(spec.submodule_search_locations)


def _find(module: str, path: list[str] | None) -> ModuleSpec | None:
    if module.partition(".")[0] in _NEVER or module in MAIN_MODULES:
        return None
    loaded = getattr(sys.modules.get(module), "__spec__", None)
    if isinstance(loaded, ModuleSpec):
        return loaded
    for finder in sys.meta_path:
        with suppress(Exception):  # finders are anybody's code
            spec = finder.find_spec(module, path)
            if spec is not None:
                return spec
    # Python finds no folder without __init__.py below another one that is not imported yet.
    folders = [str(folder) for parent in path or () if (folder := Path(parent, module.rpartition(".")[2])).is_dir()]
    if not folders:
        return None
    namespace = ModuleSpec(module, None, is_package=True)
    namespace.submodule_search_locations = folders
    return namespace


def _is_own(module: str, spec: ModuleSpec) -> bool:
    places = [spec.origin] if spec.origin not in {None, "namespace"} else spec.submodule_search_locations or []
    return all(Origin(module, "", place).is_own for place in places)


def _below(root: str) -> Iterator[str]:
    """Yield a module and all that lie below it."""
    for module, spec in list(_specs(root))[-1:]:
        if module != root:
            return
        yield module
        for folder in spec.submodule_search_locations or ():
            with suppress(OSError):
                for entry in sorted(Path(folder).iterdir()):
                    name = entry.stem if entry.suffix == ".py" else entry.name if entry.is_dir() else ""
                    if name.isidentifier() and name not in {"__init__", "__pycache__"}:
                        yield from _below(f"{module}.{name}")


def _changed_ns(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns  # noqa: PTH116 - once per module and call
    except OSError:
        return 0


@functools.lru_cache(maxsize=4 * _MOST_MODULES)
def _read(module: str, file: str, is_package: bool, _changed: int) -> _Read:
    if not file.endswith(".py"):
        return _Read("", (), ())
    try:
        text = importlib.util.decode_source(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return _Read("", (), ())
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):  # importing it will say what is wrong
        return _Read(text, (), ())
    package = module if is_package else module.rpartition(".")[0]
    return _Read(
        text,
        tuple(dict.fromkeys(_imports(tree.body, package, nested=True))),
        tuple(dict.fromkeys(_imports(tree.body, package, nested=False))),
    )


def _imports(body: Iterable[ast.AST], package: str, *, nested: bool) -> Iterator[str]:
    """Yield what code imports. ``nested``: inside functions as well. What only a type checker sees does not count."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            if base:
                yield from (base if alias.name == "*" else f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _imports(node.orelse, package, nested=nested)
        elif nested or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from _imports(ast.iter_child_nodes(node), package, nested=nested)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    base = ".".join(parts[: len(parts) - node.level + 1])
    return ".".join(part for part in (base, node.module) if part)


@functools.lru_cache(maxsize=32)
def _packed(found: tuple[tuple[str, str, bool, bool, int], ...]) -> bytes:
    return pack_modules(
        [
            ModuleSource(module, origin, is_package, wins, _read(module, origin, is_package, changed).source)
            for module, origin, is_package, wins, changed in found
        ]
    )
