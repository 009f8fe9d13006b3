"""Starting a supervisor, and hearing from it."""

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

from . import logs
from .control import DETACH, LAST_KINDS, Event
from .settings import StackOptions
from .state import StackError


class Launch:
    """A supervisor process of this command's.

    Unless :meth:`detach` is called, it stops its stack when this process ends, however it ends.

    Raises:
        StackError: the home's folder can't be made or written.
    """

    def __init__(self, options: StackOptions) -> None:
        self._log = options.home / "logs" / "supervisor.log"
        try:
            # Calls' arguments and results lie in there.
            options.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._log.parent.mkdir(mode=0o700, exist_ok=True)
            logs.bound(self._log)
            self._log_start_bytes = logs.size(self._log)
            output = self._log.open("ab")
        except OSError as error:
            raise StackError(f"{options.home} can't be used as READIE_HOME: {error}") from error
        self._connection, theirs = socket.socketpair()
        with output, theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "readie.stack", options.model_dump_json(), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                cwd=options.home,
                start_new_session=True,
            )

    def events(self) -> Iterator[Event]:
        """Yield what the supervisor reports, until it ends.

        Raises:
            StackError: it ended without a word.
        """
        last: Event | None = None
        with self._connection.makefile("rb") as lines:
            for line in lines:
                last = Event.model_validate_json(line)
                if last.kind in LAST_KINDS:
                    # Who hears of the end may rely on it: no process, no file, no lock is left.
                    self._process.wait()
                yield last
        status = self._process.wait()
        if last is None or last.kind not in LAST_KINDS:
            raise StackError(
                f"the supervisor ended unexpectedly (status {status}); `readie down` stops what it has left. "
                f"The end of {self._log}:\n{logs.tail(self._log, self._log_start_bytes)}"
            )

    def detach(self) -> None:
        """Let the stack live on after this process."""
        self._connection.send(DETACH)
        self._connection.close()

    def stop(self) -> None:
        """Ask for an orderly stop; asked again, for one at once. The events go on until it is done."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
