"""Run Python functions remotely with no import cold start.

``errors`` and ``hooks`` need the standard library alone, so that a sandbox can import this package; the client's names
are loaded when they are first used.
"""

import importlib
from typing import TYPE_CHECKING

from .errors import (
    CallCancelledError,
    CallExpiredError,
    CallTimeoutError,
    ClusterUnavailableError,
    ConfigurationError,
    IncompatiblePythonError,
    InvalidRequestError,
    MemoryLimitError,
    PackageInstallError,
    PreconditionError,
    ReadieError,
    RemoteError,
    ResourceExhaustedError,
    ResultExpiredError,
    RunningLoopError,
    SandboxDiedError,
    SerializationError,
    SessionExpiredError,
    SessionLostError,
    SignatureError,
    WorkerLostError,
)
from .hooks import after_restore, before_snapshot

if TYPE_CHECKING:
    from .call import Call, CallStatus
    from .client import Client, configure, get_call
    from .logs import Logs
    from .mapping import as_completed, gather
    from .remote_function import RemoteFunction, remote
    from .retries import Retries
    from .sessions import Session, get_session, session
    from .stream import Stream

__version__ = "0.1.0"

__all__ = [
    "remote",
    "RemoteFunction",
    "Call",
    "CallStatus",
    "Stream",
    "Logs",
    "Client",
    "configure",
    "get_call",
    "as_completed",
    "gather",
    "Retries",
    "session",
    "get_session",
    "Session",
    "after_restore",
    "before_snapshot",
    "ReadieError",
    "CallCancelledError",
    "CallExpiredError",
    "CallTimeoutError",
    "ClusterUnavailableError",
    "ConfigurationError",
    "IncompatiblePythonError",
    "InvalidRequestError",
    "MemoryLimitError",
    "PackageInstallError",
    "PreconditionError",
    "RemoteError",
    "ResourceExhaustedError",
    "ResultExpiredError",
    "RunningLoopError",
    "SandboxDiedError",
    "SerializationError",
    "SessionExpiredError",
    "SessionLostError",
    "SignatureError",
    "WorkerLostError",
]

_LAZY = {
    "remote": "remote_function",
    "RemoteFunction": "remote_function",
    "Call": "call",
    "CallStatus": "call",
    "as_completed": "mapping",
    "gather": "mapping",
    "Retries": "retries",
    "Stream": "stream",
    "Logs": "logs",
    "Client": "client",
    "configure": "client",
    "get_call": "client",
    "session": "sessions",
    "get_session": "sessions",
    "Session": "sessions",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{_LAZY[name]}":
            raise
        # A sandbox has this package without its client.
        value = importlib.import_module(".inside", __name__).stand_in(name)
    globals()[name] = value
    return value
