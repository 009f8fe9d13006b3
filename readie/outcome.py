"""From a stored end of a call to the value or the exception its caller gets."""

import itertools
import linecache
import re
from typing import Any, cast

from .errors import MemoryLimitError, RemoteError
from .failures import CLASSES
from .pickling import load_value
from .protocol.codes import ErrorCode
from .protocol.envelope import Failure

_FRAME = re.compile(r'(?P<indent>[ |+]*)File "(?P<file>[^"]+)", line (?P<line>\d+), in ')

_both_types: dict[type[BaseException], type[BaseException]] = {}


def _as_both(error: BaseException) -> BaseException | None:
    """Return the exception as its own type and ``RemoteError`` at once; ``None`` where its type does not allow that."""
    own = type(error)
    if isinstance(error, RemoteError):
        return error
    try:
        both = _both_types.get(own)
        if both is None:
            names = {"__module__": own.__module__, "__qualname__": own.__qualname__, "__doc__": own.__doc__}
            both = _both_types[own] = type(own.__name__, (own, RemoteError), names)
        try:
            # Keeps the object as it is, whatever its __init__ asks for or its __setattr__ refuses.
            BaseException.__setattr__(error, "__class__", both)
        except TypeError:
            # Classes written in C can't be changed in place; what they pickle as is what builds them.
            _, arguments, *state = cast("tuple[Any, ...]", error.__reduce__())
            built = both(*arguments)
            if state:
                built.__setstate__(state[0])
            return built
    except Exception:
        return None
    return error


def exception_of(failure: Failure, pickled: bytes | bytearray | None) -> BaseException:
    """Return the exception to raise for a failure; never raises itself.

    Args:
        failure: as stored.
        pickled: the container with the pickled remote exception, where there is one.
    """
    if failure.code is not ErrorCode.REMOTE:
        raised = CLASSES[failure.code](failure.message)
        if isinstance(raised, MemoryLimitError):
            raised.limit_bytes, raised.peak_bytes = failure.limit_bytes, failure.peak_bytes
        return raised
    error: BaseException | None = None
    if pickled:
        try:
            loaded = load_value(pickled)
        except Exception as reason:
            failure = failure.model_copy(
                update={"message": f"{failure.message} (the exception can't be rebuilt here: {reason})"}
            )
        else:
            if isinstance(loaded, ModuleNotFoundError):
                _name_the_fix(loaded, failure.flavor)
            error = _as_both(loaded) if isinstance(loaded, BaseException) else None
    if error is None:
        error = RemoteError(f"{failure.type}: {failure.message}")
    known: dict[str, object] = {"remote_type": failure.type, "remote_traceback": failure.traceback}
    if failure.traceback:
        # A note, because Python shows notes with the local traceback and leaves __cause__ to the user's code.
        note = f"\nRemote traceback:\n{_with_source_lines(failure.traceback).rstrip()}"
        known["__notes__"] = [*getattr(error, "__notes__", ()), note]
    for name, value in known.items():
        BaseException.__setattr__(error, name, value)
    return error


def _name_the_fix(error: ModuleNotFoundError, flavor: str) -> None:
    """Say in the error what to do about a module that the sandbox does not have."""
    if not error.name or not flavor:
        return
    package, _, below = error.name.partition(".")
    what = f"package {package!r} with this module" if below else f"package {package!r}"
    message = (
        f"{error.msg}. The flavor {flavor!r} has no {what}: add it to the flavor's requirements.txt and run "
        f"`make generation`, or ask for it with @remote(packages=[{package!r}]). If it is a module of your own, "
        f"@remote(include_modules=[{package!r}]) sends it along"
    )
    error.msg, error.args = message, (message,)


def _with_source_lines(text: str) -> str:
    """Add the source lines that the sandbox could not read, as the files are here."""
    lines = text.splitlines()
    shown = []
    for line, following in itertools.zip_longest(lines, lines[1:], fillvalue=""):
        shown.append(line)
        frame = _FRAME.match(line)
        if frame and not following.startswith(frame["indent"] + "  "):
            source = linecache.getline(frame["file"], int(frame["line"])).strip()
            if source:
                shown.append(f"{frame['indent']}  {source}")
    return "\n".join(shown)
