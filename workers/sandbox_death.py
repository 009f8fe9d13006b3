"""Why a call's sandbox ended, in words for its caller."""

from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import Failure
from readie.sizes import format_bytes

from .sandbox.cgroup import LimitError, MemoryHeldError
from .sandbox.sandbox import Exhausted, Sandbox


def failure_of_death(sandbox: Sandbox, error: Exception) -> Failure:
    """Return why the call has no value whose connection broke with ``error``."""
    exhausted = sandbox.exhausted()
    if exhausted is None:
        return Failure(
            code=ErrorCode.SANDBOX_DIED,
            message=f"the sandbox ended during the call ({error}): the function ended its process, crashed it, "
            "or wrote to its connection",
        )
    if exhausted.resource == "processes":
        return Failure(
            code=ErrorCode.SANDBOX_DIED,
            message=f"the sandbox was ended: it needed more than {exhausted.limit} processes and threads of its host",
        )
    return _out_of_memory(exhausted)


def failure_of_limit(memory_bytes: int | None, error: LimitError) -> Failure:
    """Return why a call can't have the limits it asks for, ``memory_bytes`` among them."""
    if not isinstance(error, MemoryHeldError):
        return Failure(code=ErrorCode.RESOURCE_EXHAUSTED, message=f"{error}; call without cpu=")
    limit_bytes = memory_bytes or 0
    return Failure(
        code=ErrorCode.MEMORY_LIMIT,
        message=f"the sandbox can't be limited to {format_bytes(limit_bytes)} before the call begins: {error}; "
        "call with a higher memory=",
        limit_bytes=limit_bytes,
    )


def _out_of_memory(exhausted: Exhausted) -> Failure:
    limit_bytes, peak_bytes = exhausted.limit or 0, exhausted.peak_bytes
    # Close to the limit is at it: the peak is what was held, the last page is what was not given.
    if limit_bytes and peak_bytes > limit_bytes * 0.9:
        why = f"of {format_bytes(limit_bytes)}; call with a higher memory="
    else:
        why = "left on the worker's machine"
    return Failure(
        code=ErrorCode.MEMORY_LIMIT,
        message=f"the sandbox ran out of the memory {why} (it held {format_bytes(peak_bytes)} at most)",
        limit_bytes=limit_bytes,
        peak_bytes=peak_bytes,
    )
