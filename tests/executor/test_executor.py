from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from executor_process import Executor

from readie.pickling import dump_call, load_value
from readie.protocol import payload
from workers.executor import wire
from workers.executor.wire import FrameTooLargeError, Kind, WireError
from workers.sandbox.connection import CallResult, ConnectionLostError, ExecutorConnection
from workers.sandbox.output import OutputPipe


def run(connection: ExecutorConnection, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> CallResult:
    return connection.call("c1", function.__name__, [dump_call(function, arguments, keywords)], timeout=30)


def test_it_greets_with_what_it_is(connection: ExecutorConnection) -> None:
    hello = connection.hello

    assert (hello.wire, hello.python, hello.start) == (wire.WIRE_VERSION, platform.python_version(), "started")
    assert hello.imported == []


def test_it_runs_calls_one_after_another(connection: ExecutorConnection) -> None:
    values = [load_value(run(connection, lambda a, *, b: a * b, number, b=2).value) for number in range(3)]

    assert values == [0, 2, 4]


def test_large_buffers_come_back_writable(connection: ExecutorConnection) -> None:
    result = run(connection, lambda data: (len(data), data), bytearray(b"x" * 5_000_000))

    assert load_value(result.value) == (5_000_000, bytearray(b"x" * 5_000_000))


def test_an_exception_comes_back_with_its_type_and_the_users_part_of_the_traceback(
    connection: ExecutorConnection,
) -> None:
    def inner() -> None:
        raise LookupError("no such row", 7)

    def outer() -> None:
        inner()

    result = run(connection, outer)

    assert result.outcome == "error"
    assert result.error is not None
    assert (result.error.code, result.error.type, result.error.module) == ("raised", "LookupError", "builtins")
    assert result.error.message == "('no such row', 7)"
    assert "in outer" in result.error.traceback
    assert "in inner" in result.error.traceback
    assert "workers/executor" not in result.error.traceback
    error = load_value(result.value)
    assert type(error) is LookupError
    assert error.args == ("no such row", 7)


def test_the_cause_of_an_exception_is_in_the_traceback(connection: ExecutorConnection) -> None:
    def function() -> None:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error

    result = run(connection, function)

    assert result.error is not None
    assert "KeyError: 'first'" in result.error.traceback
    assert "direct cause" in result.error.traceback


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_leaving_the_function_by_a_base_exception_is_an_error_and_no_end(
    connection: ExecutorConnection, raised: BaseException
) -> None:
    def function() -> None:
        raise raised

    result = run(connection, function)

    assert result.error is not None
    assert result.error.type == type(raised).__name__
    assert load_value(run(connection, lambda: "still here").value) == "still here"


def test_an_exception_whose_class_can_not_be_called_with_its_args_comes_back_whole(
    connection: ExecutorConnection,
) -> None:
    def function() -> None:
        class PickyError(Exception):
            def __init__(self, *, code: int) -> None:
                super().__init__(f"code {code}")
                self.code = code

        class PickierError(PickyError):
            pass

        try:
            raise KeyError("first")
        except KeyError as cause:
            raise PickierError(code=5) from cause

    raised = load_value(run(connection, function).value)

    assert type(raised).__name__ == "PickierError"
    assert raised.args == ("code 5",)
    assert raised.code == 5
    assert isinstance(raised.__cause__, KeyError)


def test_an_exception_that_can_not_be_changed_comes_back_whole(connection: ExecutorConnection) -> None:
    def function() -> None:
        class FrozenError(Exception):
            def __setattr__(self, name: str, value: object) -> None:
                raise AttributeError(name)

        raise FrozenError(5) from KeyError("first")

    raised = load_value(run(connection, function).value)

    assert type(raised).__name__ == "FrozenError"
    assert raised.args == (5,)
    assert isinstance(raised.__cause__, KeyError)


def test_an_exception_that_does_not_unpickle_comes_back_as_text_alone(connection: ExecutorConnection) -> None:
    def function() -> None:
        class PickyError(Exception):
            def __reduce__(self) -> tuple[object, ...]:
                return int, ("no number",)

        raise PickyError("code 5")

    result = run(connection, function)

    assert result.error is not None
    assert result.error.type.endswith("PickyError")
    assert result.error.message == "code 5"
    assert len(result.value) == 0


def test_an_exception_whose_text_fails_is_told_all_the_same(connection: ExecutorConnection) -> None:
    def function() -> None:
        class MuteError(Exception):
            def __str__(self) -> str:
                raise RuntimeError

        raise MuteError

    result = run(connection, function)

    assert result.error is not None
    assert result.error.message == "(the message can't be shown: RuntimeError)"


def test_endless_messages_are_shortened(connection: ExecutorConnection) -> None:
    def function() -> None:
        raise ValueError("\U0001f40d" * 3_000_000)

    result = run(connection, function)

    assert result.error is not None
    assert "characters left out" in result.error.message
    assert "characters left out" in result.error.traceback


def test_a_result_that_cannot_be_pickled_is_a_serialization_error(connection: ExecutorConnection) -> None:
    def function() -> Any:
        import threading

        return threading.Lock()

    result = run(connection, function)

    assert result.error is not None
    assert result.error.code == "serialization"
    assert "the result, a _thread.lock, can't be pickled" in result.error.message


def test_a_module_that_the_sandbox_lacks_is_a_deserialization_error(
    connection: ExecutorConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_at_the_client.py").write_text("def function(): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    import only_at_the_client  # type: ignore[import-not-found]

    result = run(connection, only_at_the_client.function)

    assert result.error is not None
    assert (result.error.code, result.error.type) == ("deserialization", "ModuleNotFoundError")
    assert "only_at_the_client" in result.error.message
    assert isinstance(load_value(result.value), ModuleNotFoundError)


@pytest.mark.parametrize("container", [b"", b"garbage", b"".join(payload.encode([payload.Pickled(b"\x80\x05N.")]))])
def test_a_payload_that_is_no_call_is_a_deserialization_error(connection: ExecutorConnection, container: bytes) -> None:
    result = connection.call("c1", "f", [container], timeout=30)

    assert result.error is not None
    assert (result.error.code, result.error.type) == ("deserialization", "ValueError")
    assert load_value(run(connection, lambda: 1).value) == 1


def test_the_phases_tell_loading_from_running_from_pickling(connection: ExecutorConnection) -> None:
    class Slow:
        """Takes time when it is pickled and when it is unpickled."""

        def __reduce__(self) -> Any:
            import time

            time.sleep(0.2)
            return _slow, ()

    def _slow() -> Any:
        import time

        time.sleep(0.1)
        return Slow()

    def function(value: Any) -> Any:
        import time

        time.sleep(0.05)
        return value

    header = run(connection, function, Slow()).header

    assert header.dump_seconds > header.load_seconds > header.execute_seconds >= 0.05
    assert header.load_seconds >= 0.1
    assert header.dump_seconds >= 0.2


def test_a_function_that_ends_the_process_ends_the_connection(connection: ExecutorConnection) -> None:
    def function() -> None:
        os._exit(0)

    with pytest.raises(ConnectionLostError):
        run(connection, function)


def test_a_function_that_closes_every_descriptor_ends_the_connection(connection: ExecutorConnection) -> None:
    def function() -> None:
        os.closerange(0, 100)

    with pytest.raises(ConnectionLostError):
        run(connection, function)


def test_a_function_that_writes_into_the_connection_is_a_wire_error(connection: ExecutorConnection) -> None:
    def function() -> None:
        import socket
        import stat

        for descriptor in range(3, 100):
            try:
                if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                    socket.socket(fileno=os.dup(descriptor)).sendall(b"garbage garbage")
            except OSError:
                continue

    with pytest.raises(WireError, match="kind 97"):
        run(connection, function)


def test_a_result_above_the_limit_is_refused(connection: ExecutorConnection) -> None:
    with pytest.raises(FrameTooLargeError, match="above the limit of 1000 bytes"):
        connection.call("c1", "f", [dump_call(lambda: b"x" * 10_000, (), {})], timeout=30, max_result_bytes=1000)


def test_a_function_that_takes_too_long_ends_in_a_timeout(connection: ExecutorConnection) -> None:
    def function() -> None:
        import time

        time.sleep(60)

    with pytest.raises(TimeoutError):
        connection.call("c1", "f", [dump_call(function, (), {})], timeout=0.2)


def test_a_timeout_may_be_longer_than_the_system_can_wait_at_once(connection: ExecutorConnection) -> None:
    def function() -> str:
        import time

        time.sleep(0.1)
        return "done"

    result = connection.call("c1", "f", [dump_call(function, (), {})], timeout=1e9)
    assert load_value(result.value) == "done"


def test_it_ends_when_the_worker_closes_the_connection(control: Path, run_executor: Callable[..., Executor]) -> None:
    (control / "go").write_text("started")
    executor = run_executor()
    executor.connect().close()

    assert executor.process.wait(30) == 0


def test_it_imports_tells_and_stands_still_until_it_may_go_on(
    control: Path, run_executor: Callable[..., Executor]
) -> None:
    (control / "imports.json").write_text(json.dumps(["decimal", "no_such_module", "fractions"]))
    executor = run_executor()
    executor.wait_for("imported.json")
    report = json.loads((control / "imported.json").read_text())

    assert report["imported"] == ["decimal", "fractions"]
    assert report["failed"] == {"no_such_module": "ModuleNotFoundError: No module named 'no_such_module'"}
    assert [module["name"] for module in report["modules"]] == ["decimal", "fractions"]
    assert "decimal" in report["loaded"]
    assert report["anonymous_mb"] > 1
    assert report["threads"] == 1
    assert report["sockets"] == 0
    assert not (control / "executor.sock").exists()

    executor.go_on("restored")
    connection = executor.connect()
    assert connection.hello.start == "restored"
    assert connection.hello.imported == ["decimal", "fractions"]
    assert connection.hello.repair_seconds > 0
    connection.close()


def test_open_sockets_are_told(control: Path, run_executor: Callable[..., Executor], tmp_path: Path) -> None:
    (tmp_path / "keeps_a_socket.py").write_text("import socket\nkept = socket.socketpair()\n")
    (control / "imports.json").write_text(json.dumps(["keeps_a_socket"]))
    executor = run_executor(tmp_path)
    executor.wait_for("imported.json")

    assert json.loads((control / "imported.json").read_text())["sockets"] == 2


def test_hooks_run_before_the_snapshot_and_after_the_restore(
    control: Path, run_executor: Callable[..., Executor], tmp_path: Path
) -> None:
    (tmp_path / "hooked.py").write_text(
        "import readie\n"
        "seen = []\n"
        "@readie.before_snapshot\n"
        "def before(): seen.append('before')\n"
        "@readie.after_restore\n"
        "def after(): seen.append('after')\n"
    )
    (control / "imports.json").write_text(json.dumps(["hooked"]))
    executor = run_executor(tmp_path)
    executor.wait_for("imported.json")
    executor.go_on("restored")
    connection = executor.connect()

    def seen() -> Any:
        import hooked  # type: ignore[import-not-found]

        return hooked.seen

    assert load_value(run(connection, seen).value) == ["before", "after"]
    connection.close()


def test_a_hook_that_fails_ends_the_executor_and_says_why(
    control: Path, run_executor: Callable[..., Executor], tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text(
        "import readie\n@readie.after_restore\ndef after(): raise OSError('no license file')\n"
    )
    (control / "imports.json").write_text(json.dumps(["broken"]))
    (control / "go").write_text("restored")
    executor = run_executor(tmp_path)

    assert executor.process.wait(30) == 1
    assert "OSError: no license file" in (control / "failure").read_text()


def test_an_executor_of_another_wire_version_is_refused() -> None:
    worker_end, executor_end = socket.socketpair()
    hello = {"wire": 99, "python": "3.11.7", "start": "started", "imported": [], "repair_seconds": 0.0}
    with executor_end:
        wire.send_json(executor_end, Kind.HELLO, hello)
        with pytest.raises(WireError, match="wire version 99"):
            ExecutorConnection(worker_end, OutputPipe(), deadline=time.monotonic() + 30)


@pytest.mark.parametrize(
    "change", [{"wire": "x"}, {"imported": None}, {"start": "resumed"}, {"repair_seconds": "soon"}], ids=str
)
def test_a_greeting_that_is_not_as_agreed_is_refused(change: dict[str, object]) -> None:
    worker_end, executor_end = socket.socketpair()
    hello = {"wire": wire.WIRE_VERSION, "python": "3.11.7", "start": "started", "imported": [], "repair_seconds": 0.0}
    with executor_end:
        wire.send_json(executor_end, Kind.HELLO, {**hello, **change})
        with pytest.raises(WireError, match="HELLO frame is not as agreed"):
            ExecutorConnection(worker_end, OutputPipe(), deadline=time.monotonic() + 30)


def test_an_unknown_key_of_a_frame_is_ignored() -> None:
    worker_end, executor_end = socket.socketpair()
    hello = {
        "wire": wire.WIRE_VERSION,
        "python": "3.11.7",
        "start": "started",
        "imported": [],
        "repair_seconds": 0.0,
        "new": 1,
    }
    with executor_end:
        wire.send_json(executor_end, Kind.HELLO, hello)
        connection = ExecutorConnection(worker_end, OutputPipe(), deadline=time.monotonic() + 30)
        assert connection.hello.python == "3.11.7"
        connection.close()


def test_the_executor_needs_the_standard_library_and_cloudpickle_alone() -> None:
    import cloudpickle

    # With -S, as in a sandbox, but beside the client's own packages: whatever it imported would show up.
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]; import workers.executor.__main__;"
        "print(sorted({name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)))"
    )
    root = Path(__file__).parents[2]
    only_cloudpickle = Path(cloudpickle.__file__).parent
    output = subprocess.check_output(
        [sys.executable, "-S", "-I", "-c", code, str(root), str(only_cloudpickle.parent)], text=True
    )

    assert set(eval(output)) <= {"__main__", "cloudpickle", "readie", "workers"}


def test_a_function_that_forks_and_returns_twice_is_answered_once(connection: ExecutorConnection) -> None:
    def fork() -> str:
        os.fork()
        return "once"

    assert load_value(run(connection, fork).value) == "once"
    assert load_value(run(connection, lambda: "next").value) == "next"


def test_the_address_space_is_bounded_when_the_worker_says_so(connection: ExecutorConnection) -> None:
    assert run(connection, lambda: len(bytearray(200 << 20))).error is None
    connection.address_space_bytes = 100 << 20
    result = run(connection, lambda: len(bytearray(200 << 20)))

    assert result.error is not None
    assert result.error.type == "MemoryError"
    assert load_value(run(connection, lambda: len(bytearray(10 << 20))).value) == 10 << 20
