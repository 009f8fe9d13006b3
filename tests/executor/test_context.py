"""What goes with a call takes effect in the executor: modules, environment, versions."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from executor_process import Executor

from readie.errors import SerializationError
from readie.pickling import load_value, pickle_call
from readie.protocol.context import Context, ModuleSource, pack, pack_modules, unpack
from readie.protocol.payload import Pickled, encode
from readie.protocol.versions import differences, versions_of
from workers.sandbox.connection import CallResult, ExecutorConnection


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[ExecutorConnection]:
    executor = Executor(tmp_path)
    executor.go_on("started")
    yield executor.connect()
    executor.close()


def call(
    connection: ExecutorConnection,
    function: object,
    *modules: ModuleSource,
    environment: dict[str, str] | None = None,
    versions: dict[str, str] | None = None,
) -> CallResult:
    pickled = pickle_call(function, (), {})  # type: ignore[arg-type]
    about = pack(versions or {}, environment or {}, pack_modules(modules))
    payload = encode([pickled.function, pickled.arguments, *map(Pickled, about)])
    return connection.call("c", "f", payload, timeout=30)


def value(result: CallResult) -> object:
    assert result.error is None, result.error
    return load_value(bytes(result.value))


def own(name: str, source: str, *, is_package: bool = False, wins: bool = False) -> ModuleSource:
    return ModuleSource(name, f"/client/{name}.py", is_package, wins, source)


def imports(name: str) -> object:
    namespace: dict[str, object] = {"__name__": "__main__"}
    exec(f"def f():\n    import {name} as module\n    return module.VALUE", namespace)
    return namespace["f"]


def test_modules_can_be_imported_with_their_packages(connection: ExecutorConnection) -> None:
    modules = (
        own("pack", "", is_package=True),
        own("pack.a", "from . import b\nVALUE = b.VALUE"),
        own("pack.b", "from . import a\nVALUE = 7"),
    )
    assert value(call(connection, imports("pack.a"), *modules)) == 7


def test_what_the_flavor_has_is_used_unless_the_module_was_named(connection: ExecutorConnection) -> None:
    source = "VALUE = 'of the client'"
    assert call(connection, imports("cloudpickle"), own("cloudpickle", source)).error is not None
    # A module that is loaded already stays what it is; of the others the named ones win.
    assert value(call(connection, imports("this"), own("this", source, wins=True))) == "of the client"


def test_a_changed_module_is_imported_anew_by_the_next_call(connection: ExecutorConnection) -> None:
    for number in (1, 1, 2):
        assert value(call(connection, imports("changing"), own("changing", f"VALUE = {number}"))) == number


def test_an_error_in_a_module_shows_its_line(connection: ExecutorConnection) -> None:
    result = call(connection, imports("broken"), own("broken", "x = 1\nraise ValueError('at the top')"))
    assert result.error is not None
    assert '"/client/broken.py", line 2' in result.error.traceback
    assert "raise ValueError('at the top')" in result.error.traceback


def test_a_module_that_decorates_with_remote_finds_plain_functions(connection: ExecutorConnection) -> None:
    source = """
from readie import Call, Client, remote, session
import readie

@remote(timeout=3)
def inner(n): return n + 1

def use(call: "Call[int]"): ...

VALUE = [inner(1), inner.local(2), list(inner.map([3])), inner.options(timeout=1)(4)]
try:
    readie.get_call("x")
except RuntimeError as error:
    VALUE.append(str(error))
"""
    source = source.replace(", session", "")
    # This executor has the whole package in sight; in a sandbox its client is missing.
    hide = (
        "import sys\nfor name in ('remote_function', 'call', 'client'): sys.modules['readie.' + name] = None\nVALUE = 0"
    )
    assert value(call(connection, imports("hide"), own("hide", hide))) == 0
    found = value(call(connection, imports("mine"), own("mine", source)))
    assert found == [2, 3, [4], 5, "readie.get_call is for clients: a sandbox has no way to the cluster"]


def test_environment_variables_are_set_for_the_one_call(connection: ExecutorConnection) -> None:
    def read() -> tuple[str | None, str | None]:
        return os.environ.get("GREETING"), os.environ.get("PYTHONPATH")

    before = value(call(connection, read))
    assert value(call(connection, read, environment={"GREETING": "hi", "PYTHONPATH": "x"})) == ("hi", "x")
    assert value(call(connection, read)) == before


def test_an_unpickling_error_names_both_versions_of_what_differs(connection: ExecutorConnection) -> None:
    class Refuses:
        def __reduce__(self) -> tuple[object, ...]:
            return exec, ("raise AttributeError('it has no such thing')",)

    refuses = Refuses()
    here = versions_of(["cloudpickle"])["cloudpickle"]
    result = call(connection, lambda: refuses, versions={"cloudpickle": "0.1", "nowhere": "2.0"})
    assert result.error is not None
    assert result.error.code == "deserialization"
    assert f"cloudpickle is 0.1 at the client and {here} in the sandbox" in result.error.message
    assert "nowhere is 2.0 at the client and missing in the sandbox" in result.error.message
    result = call(connection, lambda: refuses, versions={"cloudpickle": here})
    assert result.error is not None
    assert result.error.message == "it has no such thing", "what is alike is not named"


def test_other_versions_alone_are_no_error(connection: ExecutorConnection) -> None:
    assert value(call(connection, lambda: 3, versions={"cloudpickle": "0.1"})) == 3


def test_a_value_that_can_not_be_unpickled_here_names_both_versions() -> None:
    pieces = encode([Pickled(b"cnowhere\nThing\n."), Pickled(b'{"cloudpickle": "0.1"}')])
    with pytest.raises(SerializationError, match=r"ModuleNotFoundError.*cloudpickle is 0\.1 in the sandbox and"):
        load_value(b"".join(pieces))


def test_the_versions_of_what_a_pickle_refers_to_go_along() -> None:
    import cloudpickle

    pickled = pickle_call(lambda: cloudpickle.dumps(1), (), {})
    assert unpack(pickled.payload({}, b"")[-1:] and [b'{"versions": {}, "environment": {}}', b""]) == Context()
    assert versions_of(pickled.modules) == {"cloudpickle": cloudpickle.__version__}
    assert differences({"cloudpickle": cloudpickle.__version__}, they="there", we="here") == ""


@pytest.mark.parametrize("items", [[b"{}"], [b"{}", b""], [b"not JSON", b""], [b'{"versions": 1}', b"garbage"]])
def test_what_is_not_as_agreed_is_refused(items: list[bytes]) -> None:
    with pytest.raises(ValueError, match="not as agreed"):
        unpack(items)
