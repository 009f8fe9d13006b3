"""The option ``retries``: after which errors a call runs again, how often and how soon."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .errors import CallTimeoutError, ConfigurationError, RemoteError, SandboxDiedError, WorkerLostError

if TYPE_CHECKING:
    from .protocol.call import RetryPolicy

MOST_RETRIES: Final = 1000
_MOST: Final = 1e9


@dataclass(frozen=True, slots=True)
class Retries:
    """After which errors a call runs again, how often and how soon.

    The cluster decides about each, not the client, which may be gone by then. A call that is run again runs from its
    beginning, in a sandbox of its own; what a former attempt did outside of it stays done.

    Example:
        ```python
        @remote(retries=readie.Retries(3, after=(ConnectionError, readie.WorkerLostError), delay=1.0))
        def fetch(url): ...
        ```
    """

    times: int
    """How often at most, besides the first time."""
    after: tuple[type[BaseException], ...] = (RemoteError, WorkerLostError, SandboxDiedError, CallTimeoutError)
    """Classes of the errors after which it runs again, those below them included. Default: whatever the function
    raises, a lost worker, a dead sandbox, a timeout."""
    delay: float = 0.0
    """Seconds before the first retry."""
    factor: float = 2.0
    """Each further retry waits this much longer, 1 or more."""
    longest_delay: float = 60.0
    """Seconds that no wait is longer than."""

    def __post_init__(self) -> None:
        if isinstance(self.times, bool) or not isinstance(self.times, int) or not 0 <= self.times <= MOST_RETRIES:
            raise ConfigurationError(f"Retries: times={self.times!r}: give a whole number from 0 to {MOST_RETRIES}")
        if not isinstance(self.after, tuple) or not all(
            isinstance(kind, type) and issubclass(kind, BaseException) for kind in self.after
        ):
            raise ConfigurationError(f"Retries: after={self.after!r}: give a tuple of exception classes")
        for name, least in (("delay", 0.0), ("factor", 1.0), ("longest_delay", 0.0)):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not least <= value <= _MOST:
                raise ConfigurationError(f"Retries: {name}={value!r}: give a number from {least:g} to {_MOST:.0e}")

    @classmethod
    def of(cls, retries: "int | Retries") -> "Retries":
        """Return what a plain number stands for."""
        return retries if isinstance(retries, Retries) else cls(retries)

    def policy(self) -> "RetryPolicy":
        """Return what travels with a call."""
        from .protocol.call import RetryPolicy  # noqa: PLC0415 - at the first call, as the rest of the client

        return RetryPolicy(
            times=self.times,
            after=tuple(qualified_name(kind) for kind in self.after),
            delay_seconds=self.delay,
            factor=self.factor,
            longest_delay_seconds=self.longest_delay,
        )


def qualified_name(kind: type) -> str:
    """Return a class's full dotted name."""
    return f"{kind.__module__}.{kind.__qualname__}"
