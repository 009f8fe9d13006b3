"""A thin typed client of the ``runsc`` command: one method per command, no knowledge of pools or calls."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from workers.sandbox.processes import wait_for_end

_PROBE_SECONDS = 10.0
_TAIL_BYTES = 8 << 10
_FIFO_BYTES = 64 << 10
_SUMMARY_CHARACTERS = 300
_ENTER = 'while [ "$1" != -- ]; do echo 0 > "$1" || exit; shift; done; shift; exec "$@"'


class RunscError(Exception):
    """A runsc command failed: ``command`` names it, ``output`` is the end of what it logged.

    ``exit_status`` is negative for a signal, and None when the command did not end within its time.
    """

    def __init__(self, command: str, exit_status: int | None, output: str) -> None:
        ended = "did not end in time" if exit_status is None else f"failed with status {exit_status}"
        super().__init__(f"runsc {command} {ended}: {_summary(output)}")
        self.command = command
        self.exit_status = exit_status
        self.output = output


@dataclass(frozen=True)
class RunscOptions:
    """Global flags of runsc; ``root`` is where it keeps the state of the containers it runs.

    ``log`` gets what runsc says, ``panic_log`` what a sandbox says that breaks.
    """

    root: Path
    log: Path
    panic_log: Path
    platform: str = "systrap"
    network: str = "none"
    overlay: str = "root:memory"
    gpu: str = "none"

    def args(self) -> list[str]:
        """Return the command-line flags."""
        flags = [
            f"--root={self.root}",
            f"--log={self.log}",
            f"--panic-log={self.panic_log}",
            f"--platform={self.platform}",
            f"--network={self.network}",
            f"--overlay2={self.overlay}",
            # The executor's socket lies in a directory of the host.
            "--host-uds=all",
            "--ignore-cgroups",
        ]
        if self.gpu == "nvproxy":
            flags.append("--nvproxy")
        return flags


@dataclass(frozen=True)
class CreateOptions:
    """Flags of ``create``.

    ``cgroup_entries`` are the ``cgroup.procs`` files of the control groups that all processes of the container are in
    from their beginning. ``output`` is the descriptor that becomes the container's standard output and error.
    """

    bundle: Path
    pid_file: Path
    cgroup_entries: tuple[Path, ...] = ()
    output: int = subprocess.DEVNULL

    def args(self) -> list[str]:
        """Return the command-line flags."""
        return [f"--bundle={self.bundle}", f"--pid-file={self.pid_file}"]


@dataclass(frozen=True)
class CheckpointOptions:
    """Flags of ``checkpoint``; ``exclude_zero_pages`` only where this runsc has it."""

    image: Path
    exclude_zero_pages: bool

    def args(self) -> list[str]:
        """Return the command-line flags."""
        flags = ["--compression=none", f"--image-path={self.image}"]
        if self.exclude_zero_pages:
            flags.append("--exclude-committed-zero-pages")
        return flags


class Runsc:
    """One runsc executable. Safe to use from several threads."""

    def __init__(self, executable: Path) -> None:
        self.executable = executable

    @cached_property
    def version(self) -> str:
        """The version an image is bound to, such as ``20260224.0``."""
        output = self._output("--version")
        match = re.search(r"^runsc version (\S+)", output, re.MULTILINE)
        if match is None:
            raise RunscError("--version", 0, output)
        return match.group(1)

    @cached_property
    def excludes_zero_pages(self) -> bool:
        """Whether ``checkpoint`` can leave zero pages out of an image."""
        return "-exclude-committed-zero-pages" in self._output("help", "checkpoint")

    def create(self, options: RunscOptions, container_id: str, create: CreateOptions, *, timeout: float) -> None:
        """Make a container that waits for ``start`` or ``restore``."""
        argv = [*entering(create.cgroup_entries), *self._argv(options, "create", [*create.args(), container_id])]
        _check("create", options, _run(argv, timeout, output=create.output))

    def start(self, options: RunscOptions, container_id: str, *, timeout: float) -> None:
        """Run the command of a created container's spec."""
        self._run(options, "start", [container_id], timeout)

    def begin_restore(self, options: RunscOptions, container_id: str, bundle: Path) -> PendingRestore:
        """Begin to continue the process of an image that is named later; the container may not be there yet."""
        return PendingRestore(self.executable, options, container_id, bundle)

    def checkpoint(
        self, options: RunscOptions, container_id: str, checkpoint: CheckpointOptions, *, timeout: float
    ) -> None:
        """Write a running container's image and end the container."""
        self._run(options, "checkpoint", [*checkpoint.args(), container_id], timeout)

    def _run(self, options: RunscOptions, command: str, arguments: Sequence[str], timeout: float) -> None:
        _check(command, options, _run(self._argv(options, command, arguments), timeout))

    def _argv(self, options: RunscOptions, command: str, arguments: Sequence[str]) -> list[str]:
        return [str(self.executable), *options.args(), command, *arguments]

    def _output(self, *arguments: str) -> str:
        with tempfile.TemporaryFile() as output:
            status = _run([str(self.executable), *arguments], _PROBE_SECONDS, output=output.fileno())
            output.seek(0)
            text = output.read().decode(errors="replace")
        if status != 0:
            raise RunscError(" ".join(arguments), status, text[-_TAIL_BYTES:])
        return text


class PendingRestore:
    """A ``runsc restore`` that has begun and waits to hear which image, so that its beginning keeps no call waiting.

    The command itself takes 20 ms, half of them a wait for the kernel (it registers for membarrier(2)), before it looks
    at anything. Then it opens its log: a FIFO, which lets nobody in who writes as long as nobody reads. The image is
    a link that is not made before. For one thread at a time.
    """

    def __init__(self, executable: Path, options: RunscOptions, container_id: str, bundle: Path) -> None:
        self._options = options
        self._said = bundle / "restore.log"
        self._image = bundle / "image"
        os.mkfifo(self._said)
        flags = ["--detach", f"--bundle={bundle}", f"--image-path={self._image}"]
        self._argv = [str(executable), *replace(options, log=self._said).args(), "restore", *flags, container_id]
        self._process = _begin(self._argv)

    def finish(self, image: Path, *, timeout: float) -> None:
        """Continue the process of ``image``; returns when it runs. To be called once."""
        self._image.symlink_to(image.absolute())
        if self._process.poll() is not None:
            # It was killed while it waited.
            self._process = _begin(self._argv)
        # Does not wait for somebody who writes.
        reading = os.open(self._said, os.O_RDONLY | os.O_NONBLOCK)
        try:
            status = _end(self._process, timeout)
            with self._options.log.open("ab") as log, contextlib.suppress(BlockingIOError):
                log.write(os.read(reading, _FIFO_BYTES))
        finally:
            os.close(reading)
        _check("restore", self._options, status)

    def cancel(self) -> None:
        """End it, unless it has ended."""
        self._process.kill()
        self._process.wait()


def find_runsc(explicit: Path | None = None) -> Path:
    """Return the runsc to use: ``explicit``, else the one beside this Python, else the one on ``PATH``.

    Raises ``FileNotFoundError`` that says where it was looked for.
    """
    if explicit is not None:
        if not os.access(explicit, os.X_OK):
            raise FileNotFoundError(f"runsc is not an executable file: {explicit}")
        return explicit
    beside = Path(sys.executable).parent / "runsc"
    if os.access(beside, os.X_OK):
        return beside
    if on_path := shutil.which("runsc"):
        return Path(on_path)
    raise FileNotFoundError(f"runsc was found neither beside {sys.executable} nor on PATH; run scripts/get-runsc")


def entering(cgroup_entries: Sequence[Path]) -> list[str]:
    """Return what to put before a command, so that it enters control groups by itself before it begins.

    A shell does it, because code between fork and exec is not safe in a process with threads.
    """
    if not cgroup_entries:
        return []
    return ["/bin/sh", "-c", _ENTER, "sh", *map(str, cgroup_entries), "--"]


def tail(path: Path) -> str:
    """Return the end of the log file ``path``, or nothing when there is none."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return log.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def _check(command: str, options: RunscOptions, status: int | None) -> None:
    if status != 0:
        raise RunscError(command, status, tail(options.log))


def _summary(output: str) -> str:
    """Return the last message of a log, without the stack trace that may follow it."""
    lines = output.strip().splitlines()
    if not lines:
        return "no output"
    try:
        message = str(json.loads(lines[-1])["msg"]).splitlines()[0]
    except (ValueError, LookupError, TypeError):
        message = lines[-1]
    return message[:_SUMMARY_CHARACTERS]


def _begin(argv: Sequence[str], output: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """Start ``argv``. A pipe as ``output`` stays open for the whole life of the sandbox, which inherits it."""
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=_ENVIRONMENT)


def _end(process: subprocess.Popen[bytes], timeout: float) -> int | None:
    """Return the exit status of ``process``, or None after killing it when ``timeout`` seconds have passed.

    Waits on a pidfd, because ``Popen.wait(timeout)`` polls with sleeps of up to 50 ms.
    """
    pidfd = os.pidfd_open(process.pid)
    try:
        ended = wait_for_end(pidfd, timeout)
    finally:
        os.close(pidfd)
    if not ended:
        process.kill()
    status = process.wait()
    return status if ended else None


def _run(argv: Sequence[str], timeout: float, *, output: int = subprocess.DEVNULL) -> int | None:
    return _end(_begin(argv, output), timeout)


_ENVIRONMENT: Mapping[str, str] = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
"""Nothing of the worker's own environment is handed to runsc."""
