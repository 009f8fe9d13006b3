"""The exception class of each way a call can fail, and whether a call that failed so is run again."""

from collections.abc import Iterator
from typing import NamedTuple

from .errors import (
    CallCancelledError,
    CallExpiredError,
    CallTimeoutError,
    IncompatiblePythonError,
    InvalidRequestError,
    MemoryLimitError,
    PackageInstallError,
    PreconditionError,
    ReadieError,
    RemoteError,
    ResourceExhaustedError,
    SandboxDiedError,
    SerializationError,
    SessionExpiredError,
    SessionLostError,
    WorkerLostError,
)
from .protocol.call import RetryPolicy
from .protocol.codes import ErrorCode
from .protocol.envelope import Failure
from .retries import qualified_name

CLASSES: dict[ErrorCode, type[ReadieError]] = {
    ErrorCode.REMOTE: RemoteError,
    ErrorCode.SERIALIZATION: SerializationError,
    ErrorCode.INVALID_REQUEST: InvalidRequestError,
    ErrorCode.PRECONDITION: PreconditionError,
    ErrorCode.INCOMPATIBLE_PYTHON: IncompatiblePythonError,
    ErrorCode.RESOURCE_EXHAUSTED: ResourceExhaustedError,
    ErrorCode.PACKAGE_INSTALL: PackageInstallError,
    ErrorCode.TIMEOUT: CallTimeoutError,
    ErrorCode.CANCELLED: CallCancelledError,
    ErrorCode.EXPIRED: CallExpiredError,
    ErrorCode.SESSION_EXPIRED: SessionExpiredError,
    ErrorCode.SESSION_LOST: SessionLostError,
    ErrorCode.WORKER_LOST: WorkerLostError,
    ErrorCode.SANDBOX_DIED: SandboxDiedError,
    ErrorCode.MEMORY_LIMIT: MemoryLimitError,
    ErrorCode.OTHER: ReadieError,
}


def classes_of(failure: Failure) -> Iterator[str]:
    """Yield the qualified names of all classes that the failure's exception is an instance of at its caller."""
    yield from (qualified_name(kind) for kind in CLASSES[failure.code].__mro__)
    yield from failure.bases


class Retry(NamedTuple):
    """That a call is to run again."""

    delay_seconds: float
    why: str
    """For people."""


def retry_after(policy: RetryPolicy | None, begun: int, failure: Failure) -> Retry | None:
    """Return how a call is to run again, ``None``: it has failed for good.

    Args:
        policy: the call's; ``None`` without any.
        begun: how often the call has begun by now.
        failure: of its last attempt.
    """
    delay_seconds = None if policy is None else policy.delay_after(begun, classes_of(failure))
    if policy is None or delay_seconds is None:
        return None
    name = failure.type.rpartition(".")[2] or CLASSES[failure.code].__name__
    return Retry(delay_seconds, f"retry {begun} of {policy.times} after {name}: {failure.message[:200]}")
