"""Every error a caller can see. All are :class:`ReadieError`."""


class ReadieError(Exception):
    """Base of all errors of this package."""


class ConfigurationError(ReadieError, ValueError):
    """A wrong setting or option. Raised at decoration or configuration, before anything is sent."""


class SerializationError(ReadieError):
    """Something can't be pickled; the message names the argument or the variable."""


class ClusterUnavailableError(ReadieError, ConnectionError):
    """Redis can't be reached."""


class RunningLoopError(ReadieError, RuntimeError):
    """A blocking form was used in a running event loop; the message names the one to use there."""


class IncompatiblePythonError(ReadieError):
    """No worker runs the client's Python minor version."""


class InvalidRequestError(ReadieError):
    """The request names something that is not there, such as an unknown ``checkpoint_id``, or contradicts itself."""


class PreconditionError(InvalidRequestError):
    """The request does not fit the state of its session."""


class ResourceExhaustedError(ReadieError):
    """The request asks for more than any worker has, or the queue is full."""


class PackageInstallError(ReadieError):
    """The call's ``packages`` can't be installed; the message ends with the installer's last lines."""


class CallTimeoutError(ReadieError, TimeoutError):
    """The function ran longer than its ``timeout``; it was stopped."""


class CallExpiredError(ReadieError):
    """The call was not begun within its ``expires``."""


class CallCancelledError(ReadieError):
    """The call was cancelled."""


class SessionExpiredError(ReadieError):
    """The session was closed or idle for too long; what it held is gone."""


class SessionLostError(ReadieError):
    """The session's worker or sandbox died; what it held is gone. A call that was running may have run in part."""


class WorkerLostError(ReadieError):
    """The worker that ran the call vanished. The function may have run in part."""


class SandboxDiedError(ReadieError):
    """The sandbox that ran the call died: the function ended its process, or something killed it."""


class MemoryLimitError(SandboxDiedError):
    """The sandbox ran out of memory, and was ended.

    Attributes:
        limit_bytes: what it could hold, 0 when not known: its limit, or what was left on the worker's machine.
        peak_bytes: the most that it held, 0 when not known.
    """

    limit_bytes: int = 0
    peak_bytes: int = 0


class ResultExpiredError(ReadieError):
    """The call is unknown: it ended so long ago that its result is no longer kept, or it never was."""


class SignatureError(ReadieError):
    """What Redis holds for the call is not signed by a worker of this cluster; it was not unpickled."""


class RemoteError(ReadieError):
    """The function raised.

    What is raised is an instance of both this class and the user's own exception type, so ``except ValueError`` and
    ``except RemoteError`` both catch it.

    Attributes:
        remote_type: qualified name of the remote exception's class, ``"builtins.ValueError"``.
        remote_traceback: the traceback as text, as Python prints it.
    """

    remote_type: str = ""
    remote_traceback: str = ""
