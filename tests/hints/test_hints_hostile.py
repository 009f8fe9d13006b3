"""A scan never raises and runs no code of the objects it meets."""

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from readie.hints import Hints, scan


class Touched(BaseException):
    """Not an Exception: nothing that is careless about what it catches would hide it."""


def trap(*args: object, **kwargs: object) -> Any:
    raise Touched


class Trap(type):
    __getattribute__ = trap
    __hash__ = trap
    __eq__ = trap
    __instancecheck__ = trap
    __subclasscheck__ = trap
    __bool__ = trap
    __len__ = trap
    __iter__ = trap
    mro = type.mro


TRAPS: dict[str, Any] = dict.fromkeys(
    ("__getattribute__", "__getattr__", "__hash__", "__eq__", "__bool__", "__len__", "__iter__", "__call__"), trap
) | dict.fromkeys(("__class__", "__dict__", "__module__", "__wrapped__"), property(trap))
Hostile = type("Hostile", (), TRAPS)
HostileList = type("HostileList", (list,), TRAPS)
HostileDict = type("HostileDict", (dict,), TRAPS)
HostileModule = type("HostileModule", (ModuleType,), {"__getattribute__": trap, "__getattr__": trap, "__bool__": trap})

HOSTILE: dict[str, Callable[[], Any]] = {
    "instance": lambda: object.__new__(Hostile),
    "list": lambda: list.__new__(HostileList),
    "dict": lambda: dict.__new__(HostileDict),
    "module": lambda: HostileModule("hostile"),
    "class": lambda: Trap("HostileClass", (), {}),
    "instance of a class with a hostile metaclass": lambda: object.__new__(Trap("HostileClass", (), {})),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_objects_are_passed_over_untouched(kind: str) -> None:
    hostile = HOSTILE[kind]()

    def f() -> object:
        import arrays

        return hostile.some.attribute, arrays

    assert "arrays" in scan(f).imports


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_objects_can_be_scanned_themselves(kind: str) -> None:
    assert isinstance(scan(HOSTILE[kind]()), Hints)


@pytest.mark.parametrize("name", [1, None, "", "a b", "x" * 10_000, "..", b"bytes"])
def test_a_false_module_name_is_no_hint(name: object) -> None:
    cls = type("Odd", (), {})
    cls.__module__ = name  # type: ignore[assignment]
    odd = cls()
    module = ModuleType("module")
    module.__name__ = name  # type: ignore[assignment]

    def f() -> object:
        import arrays

        return odd, cls, module.part, arrays

    assert scan(f).imports == ("arrays",)


def test_a_hostile_object_in_the_place_of_a_module_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:

    def method(self: object) -> object:
        import learn

        return learn

    cls = type("Odd", (), {"__module__": "odd", "method": method})

    def f() -> object:
        import arrays
        import odd

        return cls, arrays, odd

    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "odd", object.__new__(Hostile))
        found = scan(f)
    assert found.imports == ("arrays", "learn", "odd")


def test_objects_that_hold_themselves_are_looked_at_once() -> None:
    loop: list[object] = []
    loop.extend([loop] * 200)
    namespace: dict[str, object] = {"loop": loop}
    namespace["self"] = namespace

    def j() -> object:
        import arrays

        return arrays

    def i() -> object:
        return j()

    def h() -> object:
        return i()

    def g() -> object:
        return h()

    def f() -> object:
        return loop, namespace, g()

    assert scan(f).imports == ("arrays",)


def test_code_nested_too_deeply_for_the_parser_is_read_from_its_bytecode(
    define: Callable[[str], dict[str, Any]],
) -> None:
    source = "import arrays\ndef f(x):\n import learn\n return x" + ".y()" * 400 + "\n"
    f = define(source)["f"]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(300)
    try:
        found = scan(f)
    finally:
        sys.setrecursionlimit(limit)
    assert found.imports == ("learn",)


@pytest.mark.parametrize("target", [None, 1, "text", len, print, object(), int, sys, [], iter([]), Iterator])
def test_what_is_no_function_has_no_hints(target: Any) -> None:
    assert scan(target) == Hints(())
