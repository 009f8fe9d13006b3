"""Taking images and restoring them, with the sandboxes a worker uses."""

import io
import logging
import pickle
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import cloudpickle

from readie.pickling import dump_call
from readie.protocol import payload
from workers.executor.wire import WireError
from workers.pipeline import probe
from workers.sandbox.connection import ConnectionLostError, ExecutorConnection
from workers.sandbox.host import SandboxHost
from workers.sandbox.import_report import ImportReport
from workers.sandbox.sandbox import Sandbox, SandboxFailedError

logger = logging.getLogger(__name__)

_IMPORT_SECONDS: Final = 300.0
_CHECKPOINT_SECONDS: Final = 180.0
_RESTORE_SECONDS: Final = 60.0
_READY_SECONDS: Final = 60.0
_CAPTURE_ATTEMPTS: Final = 2

# The sandboxes have no workers.pipeline.
cloudpickle.register_pickle_by_value(probe)


class CaptureError(Exception):
    """A checkpoint can't be taken or must not be used; the text says why.

    ``failed`` are the imports that raised an error, where it is these.
    """

    def __init__(self, reason: str, failed: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.failed = tuple(failed)


def capture(host: SandboxHost, imports: Sequence[str], image: Path) -> ImportReport:
    """Write the image of an executor that has imported ``imports`` into the folder ``image``; a second try is made.

    Raises ``CaptureError`` when both fail, or at once when a module can't be imported or leaves a socket open; the
    folder is then empty.
    """
    for attempt in range(1, _CAPTURE_ATTEMPTS + 1):
        sandbox = host.take()
        try:
            sandbox.start(imports=list(imports), timeout=_READY_SECONDS)
            report = sandbox.wait_imported(timeout=_IMPORT_SECONDS)
            _refuse_unfit(image.name, report)
            sandbox.checkpoint(image, timeout=_CHECKPOINT_SECONDS)
            return report
        except SandboxFailedError as error:
            remove_files(image)
            if attempt == _CAPTURE_ATTEMPTS:
                raise CaptureError(f"{image.name}: {error.reason}\n{error.log_tail}".strip()) from error
            logger.warning("%s: %s; trying once more", image.name, error.reason)
        finally:
            host.discard(sandbox)
    raise AssertionError("unreachable")


@dataclass(frozen=True)
class Restore:
    """One restore of an image."""

    seconds: float
    """Until the executor was connected."""
    drawn: Mapping[str, str]
    """What this clone drew from each of its generators of random numbers and names."""
    threads: tuple[str, ...] = ()
    """Python threads that it has besides the main one."""


def restore(host: SandboxHost, image: Path) -> Restore:
    """Restore ``image`` once and let the clone draw; ``CaptureError`` when it does not come up."""
    sandbox = host.take(to_restore=True)
    try:
        sandbox.restore(image, timeout=_RESTORE_SECONDS)
        connection = sandbox.wait_ready(timeout=_READY_SECONDS)
        seconds = sandbox.phases["restore_seconds"] + sandbox.phases["connect_seconds"]
        threads = run(connection, probe.running_threads)
        return Restore(seconds, run(connection, probe.draw), tuple(threads))
    except SandboxFailedError as error:
        raise CaptureError(f"{image.name} was taken but can't be restored: {error.reason}\n{error.log_tail}") from error
    finally:
        host.discard(sandbox)


def refuse_clones(checkpoint_id: str, restores: Sequence[Restore]) -> None:
    """Raise ``CaptureError`` when clones of an image have drawn the same number or name, or have threads."""
    if threads := sorted({name for clone in restores for name in clone.threads}):
        raise CaptureError(f"{checkpoint_id}: the snapshot has threads of Python: {', '.join(threads)}")
    drawn = [clone.drawn for clone in restores]
    names = sorted({name for values in drawn for name in values})
    if equal := [name for name in names if max(Counter(values.get(name) for values in drawn).values()) > 1]:
        raise CaptureError(f"{checkpoint_id}: its clones draw the same values from {', '.join(equal)}")


def time_cold_starts(host: SandboxHost, count: int) -> list[float]:
    """Return the seconds that each of ``count`` cold starts took, until the executor was connected."""
    seconds = []
    for _ in range(count):
        sandbox, _ = start_cold(host)
        seconds.append(sandbox.phases["start_seconds"] + sandbox.phases["connect_seconds"])
        host.discard(sandbox)
    return seconds


def start_cold(host: SandboxHost) -> tuple[Sandbox, ExecutorConnection]:
    """Return a sandbox with a fresh Python, to be discarded by the caller; ``CaptureError`` when it does not start."""
    sandbox = host.take()
    try:
        sandbox.start(timeout=_READY_SECONDS)
        return sandbox, sandbox.wait_ready(timeout=_READY_SECONDS)
    except BaseException as error:
        host.discard(sandbox)
        if isinstance(error, SandboxFailedError):
            raise CaptureError(f"a sandbox does not start: {error.reason}\n{error.log_tail}".strip()) from error
        raise


def run(
    connection: ExecutorConnection, function: Callable[..., Any], *arguments: object, timeout: float = _READY_SECONDS
) -> Any:
    """Run one of ``probe``'s functions in a sandbox and return what it returns, plain data only.

    Raises ``CaptureError`` when it fails, does not end, or kills its sandbox.
    """
    call = dump_call(function, arguments, {})
    try:
        result = connection.call("pipeline", function.__name__, [call], timeout=timeout)
    except TimeoutError as error:
        raise CaptureError(f"{function.__name__} did not end within {timeout:g} s") from error
    except (ConnectionLostError, WireError) as error:
        raise CaptureError(f"the sandbox ended in {function.__name__}: {error}") from error
    if result.error is not None:
        raise CaptureError(f"{function.__name__} failed: {result.error.type}: {result.error.message}")
    pickled, *_ = payload.decode(result.value)
    return _PlainData(io.BytesIO(pickled.data)).load()


class _PlainData(pickle.Unpickler):
    """Loads numbers, texts and their containers; packages ran where this comes from, so nothing is imported for it."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a sandbox returned a {module}.{name} instead of plain data")


def _refuse_unfit(checkpoint_id: str, report: ImportReport) -> None:
    if report.failed:
        reasons = "; ".join(f"{name} ({error})" for name, error in report.failed.items())
        raise CaptureError(f"{checkpoint_id}: can't be imported: {reasons}", tuple(report.failed))
    if report.sockets:
        # A connection of the snapshot would be one that no longer exists after a restore.
        raise CaptureError(
            f"{checkpoint_id}: {report.sockets} sockets are open after importing {', '.join(report.imported)}"
        )


def remove_files(image: Path) -> None:
    """Empty the folder of an image."""
    for file in image.glob("*"):
        file.unlink()
