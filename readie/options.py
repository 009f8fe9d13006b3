"""Options of :func:`readie.remote`, checked where the function is decorated.

By hand, not with pydantic: whoever imports a module with decorated functions would wait for its import.
"""

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, TypedDict

from .errors import ConfigurationError, InvalidRequestError
from .retries import MOST_RETRIES, Retries
from .sizes import in_bytes

if TYPE_CHECKING:
    from .protocol.call import CallOptions
    from .sessions import Session

_LEAST_MEMORY_BYTES = 64 << 20
_MOST_PACKAGES = 100
_MOST_SECONDS = 1e9
_MOST_CORES = 10_000
_PACKAGE = r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._, -]*\])?[A-Za-z0-9.,<>=!~*+ -]*"


class RemoteOptions(TypedDict, total=False):
    """Keyword arguments of ``remote`` and ``options``, as editors and type checkers see them."""

    name: str
    timeout: float | None
    expires: float | None
    priority: int
    flavor: str
    checkpoint_id: str | None
    disable_optimized_execution: bool
    memory: str | int | None
    cpu: float | None
    gpu: bool
    retries: "int | Retries | None"
    env: Mapping[str, str] | None
    include_modules: Sequence[str]
    exclude_modules: Sequence[str]
    stream_logs: bool
    session: "Session | None"
    packages: Sequence[str]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one remote function."""

    name: str | None = None
    """Shown in Flower and logs. Default: the function's qualified name."""
    timeout: float | None = None
    """Longest execution in seconds; the sandbox is killed after it."""
    expires: float | None = None
    """Seconds in the queue after which the call is dropped, if no worker has begun it by then."""
    priority: int = 0
    """0 to 9. Of the calls that wait for the same workers, those with a higher one run first."""
    flavor: str = "default"
    """Named set of packages, and so the workers, to run with."""
    checkpoint_id: str | None = None
    """Checkpoint to restore, instead of the router's choice."""
    disable_optimized_execution: bool = False
    """Start cold, without a checkpoint."""
    memory: str | int | None = None
    """What the sandbox may hold, its modules and its files on /tmp included: ``"2Gi"``, ``"512Mi"`` or bytes, 64 MiB at
    least. Default: what the worker gives by itself."""
    cpu: float | None = None
    """Cores the sandbox may use, ``1.5`` for one and a half. Default: what the worker gives by itself."""
    gpu: bool = False
    """Run only where sandboxes have a GPU."""
    retries: "int | Retries | None" = None
    """How often the call may run again after it failed: a number, or :class:`readie.Retries` to say after which errors
    and how soon. Default: what had begun is not run again."""
    env: Mapping[str, str] | None = None
    """Environment variables that are set while the call runs. They travel with the arguments, unseen by router, worker
    and logs."""
    include_modules: Sequence[str] = ()
    """Modules of your own, each with those below it, that travel with the call whether it was found to need them or
    not, and are used even where the flavor has others of these names."""
    exclude_modules: Sequence[str] = ()
    """Modules of your own, each with those below it, that never travel."""
    stream_logs: bool = False
    """Print what the function prints to standard error here, while it runs, each line after the call's name."""
    session: "Session | None" = None
    """Session that the calls run in. Default: the one of the ``with`` block around the call."""
    packages: Sequence[str] = ()
    """Requirements, such as ``["httpx>=0.28"]``, that the function needs besides its flavor's packages. The first call
    with a set installs it on its worker, which takes a while; later ones find it there."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Options":
        """Return checked options.

        Raises:
            ConfigurationError: an unknown option (names the nearest known one) or a wrong value.
            InvalidRequestError: options that contradict each other.
        """
        for name, value in values.items():
            check = _CHECKS.get(name)
            if check is None:
                near = [known for known in _CHECKS if name.startswith(known) or known.startswith(name)]
                near += difflib.get_close_matches(name, _CHECKS, n=1, cutoff=0.4)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(_CHECKS)}"
                raise ConfigurationError(f"remote() has no option {name!r}; {hint}")
            wrong = check(value)
            if wrong:
                raise ConfigurationError(f"option {name}={value!r}: {wrong}")
        options = cls(**values)
        if options.checkpoint_id is not None and options.disable_optimized_execution:
            raise InvalidRequestError(
                f"checkpoint_id={options.checkpoint_id!r} asks for a checkpoint and disable_optimized_execution=True "
                "forbids one: leave one of them out"
            )
        return options

    def changed(self, values: Mapping[str, Any]) -> "Options":
        """Return a checked copy with other values."""
        mine = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return self.of({**mine, **values})

    def for_call(self) -> "CallOptions":
        """Return what of these travels with a call."""
        from .protocol.call import CallOptions  # noqa: PLC0415 - at the first call, as the rest of the client

        return CallOptions(
            timeout_seconds=self.timeout,
            expires_seconds=self.expires,
            priority=self.priority,
            flavor=self.flavor,
            checkpoint_id=self.checkpoint_id,
            disable_optimized_execution=self.disable_optimized_execution,
            memory_bytes=None if self.memory is None else in_bytes(self.memory),
            cpu=self.cpu,
            packages=tuple(self.packages),
            gpu=self.gpu,
            retries=None if self.retries is None else Retries.of(self.retries).policy(),
        )


def check_timeout(value: object) -> None:
    """Raise ``ConfigurationError`` for what is no longest wait in seconds, nor ``None``."""
    if value is None or (isinstance(value, Real) and not isinstance(value, bool) and value == value):  # noqa: PLR0124
        return
    raise ConfigurationError(f"timeout={value!r}: give seconds, such as 1.5, or None to wait without end")


def _name(value: object) -> str:
    fits = isinstance(value, str) and 0 < len(value) <= 256 and value.isprintable()
    return "" if value is None or fits else "give 1 to 256 characters that can be printed"


def _seconds(value: object) -> str:
    if value is None or (isinstance(value, (int, float)) and value is not True and 0 < value <= _MOST_SECONDS):
        return ""
    return f"give seconds, more than 0 and at most {_MOST_SECONDS:.0e}"


def _priority(value: object) -> str:
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 9
    return "" if fits else "give a whole number from 0 to 9"


def _flavor(value: object) -> str:
    fits = isinstance(value, str) and re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", value)
    return "" if fits else "give a flavor's name, such as 'default'"


def _checkpoint_id(value: object) -> str:
    fits = isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", value)
    return "" if value is None or fits else "give an id such as 'checkpoint_1'"


def _flag(value: object) -> str:
    return "" if isinstance(value, bool) else "give True or False"


def _memory(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        return "give a size such as '2Gi', or bytes"
    try:
        enough = in_bytes(value) >= _LEAST_MEMORY_BYTES
    except ValueError as error:
        return str(error)
    return "" if enough else "give at least 64Mi: a sandbox that has done nothing yet holds about 25 MB"


def _cores(value: object) -> str:
    if value is None or (isinstance(value, (int, float)) and value is not True and 0 < value <= _MOST_CORES):
        return ""
    return f"give a number of cores, more than 0 and at most {_MOST_CORES:,}"


def _retries(value: object) -> str:
    if value is None or isinstance(value, Retries):
        return ""
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_RETRIES
    return "" if fits else f"give a whole number from 0 to {MOST_RETRIES}, or readie.Retries(...)"


def _env(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, Mapping):
        return 'give a mapping such as {"TZ": "UTC"}'
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str):
            return f"names and values are strings, which {name!r}: {text!r} is not"
        if not name or "=" in name or "\0" in name + text:
            return f"{name!r} is no name of an environment variable, or its value holds a NUL"
    return ""


def _modules(value: object) -> str:
    if isinstance(value, (list, tuple, set, frozenset)) and all(
        isinstance(name, str) and all(map(str.isidentifier, name.split("."))) for name in value
    ):
        return ""
    return 'give names of modules, such as ["project.helpers"]'


def _session(value: object) -> str:
    if value is None:
        return ""
    from .sessions import Session  # noqa: PLC0415 - whoever has one has it already

    return "" if isinstance(value, Session) else "give what readie.session() or readie.get_session() returned"


def _packages(value: object) -> str:
    if not isinstance(value, (list, tuple)) or len(value) > _MOST_PACKAGES:
        return f"give a list of up to {_MOST_PACKAGES} requirements, such as ['httpx>=0.28']"
    for one in value:
        if not isinstance(one, str) or len(one) > 256 or not re.fullmatch(_PACKAGE, one):
            return f"{one!r} is no requirement; give a name, with extras and versions if need be: 'httpx[http2]>=0.28'"
    return ""


_CHECKS: dict[str, Callable[[Any], str]] = {
    "name": _name,
    "timeout": _seconds,
    "expires": _seconds,
    "priority": _priority,
    "flavor": _flavor,
    "checkpoint_id": _checkpoint_id,
    "disable_optimized_execution": _flag,
    "memory": _memory,
    "cpu": _cores,
    "gpu": _flag,
    "retries": _retries,
    "env": _env,
    "include_modules": _modules,
    "exclude_modules": _modules,
    "stream_logs": _flag,
    "session": _session,
    "packages": _packages,
}
"""What says why a value is wrong (nothing, when it is right), for every option."""
