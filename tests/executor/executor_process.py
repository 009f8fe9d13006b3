"""An executor without a sandbox around it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from workers.sandbox.connection import ExecutorConnection
from workers.sandbox.events import FileWaiter
from workers.sandbox.output import OutputPipe

ROOT = Path(__file__).parents[2]


class Executor:
    """An executor as an ordinary process, without a sandbox around it."""

    def __init__(self, control: Path, *module_dirs: Path) -> None:
        self.control = control
        path = os.pathsep.join(map(str, (ROOT, *module_dirs)))
        command = "import sys, pathlib; from workers.executor.__main__ import main; main(pathlib.Path(sys.argv[1]))"
        self.output = OutputPipe()
        self.process = subprocess.Popen(
            [sys.executable, "-c", command, str(control)],
            stdin=subprocess.DEVNULL,
            stdout=self.output.writing,
            stderr=self.output.writing,
            env={"PYTHONPATH": path},
        )
        self.output.given_away()
        self._pidfd = os.pidfd_open(self.process.pid)

    def wait_for(self, name: str) -> None:
        FileWaiter().wait(self.control / name, pidfd=self._pidfd, deadline=time.monotonic() + 30)

    def go_on(self, start: str) -> None:
        (self.control / ".go").write_text(start)
        (self.control / ".go").rename(self.control / "go")

    def connect(self) -> ExecutorConnection:
        self.wait_for("executor.sock")
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self.control / "executor.sock"))
        return ExecutorConnection(connection, self.output, deadline=time.monotonic() + 30)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.output.close()
        os.close(self._pidfd)
