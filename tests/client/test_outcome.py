"""A remote exception is the user's own type and a RemoteError at once."""

import dataclasses
import json
import pickle
import traceback

import cloudpickle
import pytest

from readie.errors import CallTimeoutError, RemoteError
from readie.outcome import exception_of
from readie.pickling import dump_call
from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import Failure
from readie.protocol.payload import Pickled, decode, encode

TRACEBACK = 'Traceback (most recent call last):\n  File "job.py", line 7, in job\n    fail()\nValueError: no\n'


class PickyError(Exception):
    """Its constructor can't be called with its args."""

    def __init__(self, code: int, *, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        return _picky, (self.code,)


def _picky(code: int) -> PickyError:
    return PickyError(code, reason="rebuilt")


class SlottedError(Exception):
    __slots__ = ("extra",)


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    code: int

    def __reduce__(self) -> tuple[object, ...]:
        return FrozenError, (self.code,)


def rebuilt(error: BaseException) -> BaseException:
    failure = Failure(code=ErrorCode.REMOTE, type=type(error).__qualname__, message=str(error), traceback=TRACEBACK)
    return exception_of(failure, b"".join(encode([Pickled(cloudpickle.dumps(error))])))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        KeyError("name"),
        FileNotFoundError(2, "No such file", "x.csv"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        json.JSONDecodeError("bad", "{", 1),
        SystemExit(3),
        KeyboardInterrupt(),
        StopIteration(5),
        ExceptionGroup("several", [ValueError(1), TypeError(2)]),
        PickyError(4, reason="first"),
        SlottedError("s"),
        FrozenError(5),
    ],
    ids=lambda error: type(error).__name__,
)
def test_both_types_and_the_arguments_survive(error: BaseException) -> None:
    raised = rebuilt(error)
    assert isinstance(raised, type(error))
    assert isinstance(raised, RemoteError)
    assert str(raised) == str(error) or isinstance(error, PickyError)
    assert type(raised).__name__ == type(error).__name__


def test_attributes_and_notes_survive() -> None:
    error = FileNotFoundError(2, "No such file", "x.csv")
    error.add_note("while reading the report")
    raised = rebuilt(error)
    assert isinstance(raised, FileNotFoundError)
    assert (raised.errno, raised.filename) == (2, "x.csv")
    assert raised.__notes__[0] == "while reading the report"
    assert isinstance(rebuilt(PickyError(4, reason="first")), PickyError)


def test_the_remote_traceback_is_shown_with_the_local_one() -> None:
    with pytest.raises(ValueError, match="no") as caught:
        raise rebuilt(ValueError("no"))
    shown = "".join(traceback.format_exception(caught.value))
    assert isinstance(caught.value, RemoteError)
    assert caught.value.remote_traceback == TRACEBACK
    assert 'File "job.py", line 7, in job' in shown
    assert __file__ in shown
    assert caught.value.__cause__ is None


def test_the_remote_traceback_has_the_source_lines_that_are_here() -> None:
    line = rebuilt.__code__.co_firstlineno
    text = f'Traceback (most recent call last):\n  File "{__file__}", line {line}, in rebuilt\nValueError: no\n'
    failure = Failure(code=ErrorCode.REMOTE, type="builtins.ValueError", message="no", traceback=text)
    note = exception_of(failure, None).__notes__[0]
    assert f"line {line}, in rebuilt\n    def rebuilt(error: BaseException) -> BaseException:\nValueError: no" in note


def test_functions_that_travel_by_value_name_their_file_for_tracebacks() -> None:
    def fail() -> None:
        raise ValueError("no")

    sent = decode(dump_call(fail, (), {}))[0]
    with pytest.raises(ValueError, match="no") as caught:
        pickle.loads(sent.data, buffers=sent.buffers)()
    assert traceback.extract_tb(caught.tb)[-1].filename == __file__
    assert traceback.extract_tb(caught.tb)[-1].line == 'raise ValueError("no")'


def test_an_exception_that_can_not_be_rebuilt_is_a_remote_error_with_all_that_is_known() -> None:
    failure = Failure(code=ErrorCode.REMOTE, type="pkg.Odd", message="it broke", traceback=TRACEBACK)
    for pickled in (None, b"", b"garbage", b"".join(encode([Pickled(b"cpkg_that_is_not_here\nOdd\n.")]))):
        raised = exception_of(failure, pickled)
        assert type(raised) is RemoteError
        assert "pkg.Odd: it broke" in str(raised)
        assert raised.remote_traceback == TRACEBACK


def test_other_failures_have_their_own_class() -> None:
    raised = exception_of(Failure(code=ErrorCode.TIMEOUT, message="stopped after 3 s"), None)
    assert isinstance(raised, CallTimeoutError)
    assert isinstance(raised, TimeoutError)
