"""One sandbox's life: created, then restored or started, then ready, then gone."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from workers.executor import control
from workers.executor.control import Start
from workers.executor.wire import WireError
from workers.sandbox import processes
from workers.sandbox.cgroup import Cgroup, LimitError, Limits, RunCgroups
from workers.sandbox.connection import ConnectionLostError, ExecutorConnection
from workers.sandbox.events import FileWaiter, ProcessEndedError
from workers.sandbox.filesystem import Filesystem
from workers.sandbox.import_report import ImportReport
from workers.sandbox.network.gateway import Slot
from workers.sandbox.network.slots import Slots
from workers.sandbox.output import OutputPipe
from workers.sandbox.runsc import (
    CheckpointOptions,
    CreateOptions,
    PendingRestore,
    Runsc,
    RunscError,
    RunscOptions,
    tail,
)
from workers.sandbox.shape import SandboxShape
from workers.sandbox.spec import mount_sources, oci_spec

_MAX_CONTROL_FILE_BYTES = 4 << 20


FailedStep = Literal[
    "create", "network", "restore", "start", "executor", "connect", "checkpoint", "warm_up", "no_image", "quarantine"
]
"""Where a sandbox's life ended too soon: few words, to be counted by."""


class SandboxFailedError(Exception):
    """A sandbox could not be made, restored, started or reached; ``log_tail`` is the end of what runsc logged."""

    def __init__(self, step: FailedStep, reason: str, log_tail: str = "") -> None:
        super().__init__(reason)
        self.step = step
        self.reason = reason
        self.log_tail = log_tail


@dataclass(frozen=True)
class Exhausted:
    """What a sandbox ran out of. ``limit`` counts bytes or processes; ``peak_bytes`` is the most it ever held."""

    resource: Literal["memory", "processes"]
    limit: int | None
    peak_bytes: int


@dataclass(frozen=True)
class SandboxPlan:
    """What all sandboxes of a worker are made from. ``root`` is the directory on the host that becomes /, ``layers``
    that with the packages of calls.

    ``cgroups`` is ``None`` where control groups can't be used. ``memory_bytes`` is what a sandbox may hold until its
    call says something else, ``None`` without limit. ``slots`` gives each its network, ``None`` where there is none.
    """

    runsc: Runsc
    platform: str
    shape: SandboxShape
    filesystem: Filesystem
    root: Path
    layers: Path
    waiter: FileWaiter
    cgroups: RunCgroups | None = None
    memory_bytes: int | None = None
    slots: Slots | None = None


class Sandbox:
    """One runsc container and everything that belongs to it, all below one folder.

    Each has a runsc state root of its own, so taking it away is: kill its processes, remove its folder. (``runsc
    delete`` does the same in 1.5 seconds.) ``kill`` may be called from any thread; the rest from one at a time.
    """

    def __init__(
        self, plan: SandboxPlan, run_dir: Path, *, timeout: float, background: bool = False, to_restore: bool = False
    ) -> None:
        """Create the sandbox in ``run_dir`` within ``timeout`` seconds, or raise ``SandboxFailedError``.

        One that is made in the ``background`` lets all others have the CPU first, until ``set_background``. One that is
        made ``to_restore`` a checkpoint in it does so faster; it can be started cold as well.
        """
        self.id = new_sandbox_id()
        self.folder = run_dir / self.id
        self.control_dir = self.folder / "control"
        self.phases: dict[str, float] = {}
        """Seconds that each step took: create_seconds, restore_seconds or start_seconds, connect_seconds."""
        self._runsc = plan.runsc
        self._waiter = plan.waiter
        self._options = RunscOptions(
            root=self.folder / "state",
            log=self.folder / "runsc.log",
            panic_log=self.folder / "panic.log",
            platform=plan.platform,
            network=plan.shape.network,
            overlay=plan.shape.overlay,
            gpu=plan.shape.gpu,
        )
        self._output = OutputPipe(owner=plan.shape.uid)
        self._lock = threading.Lock()
        self._pidfd: int | None = None  # guarded by _lock: kill() must not signal through a closed descriptor
        self._expected_start: Start = "started"
        self._pending_restore: PendingRestore | None = None
        self._connection: ExecutorConnection | None = None
        self._cgroup: Cgroup | None = None
        self._slot: Slot | None = None
        self._limits = Limits(plan.memory_bytes, plan.shape.cpu_limit, plan.shape.pids_limit)
        try:
            self._create(plan, timeout, background, to_restore)
        except BaseException:
            self.destroy()
            raise

    def _create(self, plan: SandboxPlan, timeout: float, background: bool, to_restore: bool) -> None:
        began = time.perf_counter()
        self._options.root.mkdir(parents=True)
        self.control_dir.mkdir()
        # The sandboxed user writes here until it is ready, and no more then: see _seal().
        self.control_dir.chmod(0o777)
        self._slot = self._take_slot(plan.slots)
        spec = oci_spec(
            plan.shape,
            root=plan.root,
            sources=mount_sources(plan.filesystem, plan.layers, self.control_dir),
            hostname=self.id,
            network_namespace=self._slot.path if self._slot else None,
        )
        (self.folder / "config.json").write_text(json.dumps(spec))
        pid_file = self.folder / "pid"
        try:
            if plan.cgroups is not None:
                self._cgroup = plan.cgroups.create(self.id, self._limits, self.kill)
                self._cgroup.set_background(background)
            entries = self._cgroup.entries if self._cgroup else ()
            if to_restore:
                self._pending_restore = self._begin_restore()
            create = CreateOptions(self.folder, pid_file, entries, self._output.writing)
            self._runsc.create(self._options, self.id, create, timeout=timeout)
            self._output.given_away()
            self._pidfd = os.pidfd_open(int(pid_file.read_text()))
        except (RunscError, OSError, ValueError) as error:
            raise self._failed("create", f"creating the sandbox failed: {error}") from error
        self.phases["create_seconds"] = time.perf_counter() - began

    def _take_slot(self, slots: Slots | None) -> Slot | None:
        try:
            return slots.take() if slots else None
        except OSError as error:
            raise self._failed("network", f"the sandbox can't be given a network: {error}") from error

    @property
    def alive(self) -> bool:
        """Whether the sandbox's process runs."""
        with self._lock:
            return self._pidfd is not None and not processes.wait_for_end(self._pidfd, 0)

    def restore(self, image: Path, *, timeout: float) -> None:
        """Continue the process of the snapshot in ``image``; ``wait_ready`` comes next.

        Raises ``SandboxFailedError``, also after ``timeout`` seconds; the sandbox is then of no more use.
        """
        began = time.perf_counter()
        self._expected_start = "restored"
        self._write_control(control.GO, "restored")
        try:
            pending, self._pending_restore = self._pending_restore or self._begin_restore(), None
            pending.finish(image, timeout=timeout)
        except (RunscError, OSError) as error:
            raise self._failed("restore", f"restoring {image.name} failed: {error}") from error
        self.phases["restore_seconds"] = time.perf_counter() - began

    def start(self, *, timeout: float, imports: Sequence[str] | None = None) -> None:
        """Start the executor cold; ``wait_ready`` comes next.

        With ``imports`` (which may be empty) it imports these modules and then stands still to be snapshotted;
        ``wait_imported`` comes next. Raises ``SandboxFailedError`` as ``restore`` does.
        """
        began = time.perf_counter()
        self._cancel_restore()
        if imports is None:
            self._write_control(control.GO, "started")
        else:
            self._write_control(control.IMPORTS, json.dumps(list(imports)))
        try:
            self._runsc.start(self._options, self.id, timeout=timeout)
        except RunscError as error:
            raise self._failed("start", f"starting the executor failed: {error}") from error
        self.phases["start_seconds"] = time.perf_counter() - began

    def wait_ready(self, *, timeout: float) -> ExecutorConnection:
        """Return the connection to the executor as soon as it takes calls; ``destroy`` closes it.

        Raises ``SandboxFailedError`` at once when the sandbox ends, and after ``timeout`` seconds.
        """
        began = time.perf_counter()
        deadline = time.monotonic() + timeout
        self._wait_for(control.SOCKET, deadline)
        try:
            self._connection = ExecutorConnection(self._connect(deadline), self._output, deadline=deadline)
        except (OSError, ConnectionLostError, WireError) as error:
            raise self._failed("connect", f"the executor did not greet: {error}{self._executor_failure()}") from error
        if (began_as := self._connection.hello.start) != self._expected_start:
            raise self._failed("connect", f"the executor was {began_as}, not {self._expected_start}")
        self._seal()
        self.phases["connect_seconds"] = time.perf_counter() - began
        return self._connection

    def wait_imported(self, *, timeout: float) -> ImportReport:
        """Return the executor's report once its imports are done and it can be snapshotted.

        Raises ``SandboxFailedError`` as ``wait_ready`` does. Modules that failed to import are in the report.
        """
        self._wait_for(control.IMPORTED, time.monotonic() + timeout)
        try:
            return ImportReport.model_validate_json(self._read_control(control.IMPORTED))
        except (OSError, ValidationError) as error:
            raise self._failed("executor", f"the executor's import report can't be read: {error}") from error

    def checkpoint(self, image: Path, *, timeout: float) -> None:
        """Write the snapshot into the folder ``image``, which is made when missing; the sandbox ends by that.

        Raises ``SandboxFailedError``; what ``image`` then holds is not to be used.
        """
        image.mkdir(parents=True, exist_ok=True)
        options = CheckpointOptions(image, exclude_zero_pages=self._runsc.excludes_zero_pages)
        try:
            self._runsc.checkpoint(self._options, self.id, options, timeout=timeout)
        except RunscError as error:
            raise self._failed("checkpoint", f"taking the snapshot failed: {error}") from error

    def set_background(self, on: bool) -> None:
        """Let all other sandboxes have the CPU first, or no more; without control groups all are equal."""
        if self._cgroup is not None:
            self._cgroup.set_background(on)

    def pause(self) -> None:
        """Stop all that runs in it until ``resume``.

        A sandbox that only waits still uses 2 to 4 % of a core: gVisor looks at itself 2,500 times a second.
        """
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """End a ``pause``."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self._pidfd is not None:
                signal.pidfd_send_signal(self._pidfd, number)

    def limit(self, *, memory_bytes: int | None = None, cpu: float | None = None) -> None:
        """Bound what the next call may use; ``None`` leaves what is in force. To be called when it is ready.

        ``memory_bytes`` bounds all that the sandbox holds, what its checkpoint brought and its files on tmpfs included.
        Without control groups it bounds what each process may map beyond what it has, and there is no ``cpu``.
        Raises ``LimitError``, ``MemoryHeldError`` among them.
        """
        if self._cgroup is None:
            if cpu is not None:
                raise LimitError("this worker can't bound CPU: it has no control groups (its log says why)")
            assert self._connection is not None
            self._connection.address_space_bytes = memory_bytes or self._limits.memory_bytes
            return
        if memory_bytes is not None:
            self._cgroup.limit_memory(memory_bytes)
            self._limits = replace(self._limits, memory_bytes=memory_bytes)
        if cpu is not None:
            self._cgroup.limit_cpu(cpu)

    def exhausted(self) -> Exhausted | None:
        """Return what a sandbox that ended had run out of, ``None`` when that is not why; before ``destroy``."""
        group = self._cgroup
        with contextlib.suppress(FileNotFoundError):  # destroyed meanwhile
            if group is not None and group.out_of_memory:
                return Exhausted("memory", self._limits.memory_bytes, group.memory_peak_bytes)
            if group is not None and group.out_of_pids:
                return Exhausted("processes", self._limits.pids, group.memory_peak_bytes)
        return None

    def kill(self) -> None:
        """Kill everything that runs in the sandbox, at once; ``destroy`` must still be called."""
        with self._lock:
            if self._pidfd is not None:
                processes.kill_process(self._pidfd)

    def destroy(self) -> None:
        """Kill the sandbox and remove all of it: processes, files, sockets. Takes some 10 ms; may be repeated."""
        self.kill()
        self._cancel_restore()
        if self._connection is not None:
            self._connection.close()
        self._output.close()
        processes.kill_processes_under(self._options.root)
        if self._cgroup is not None:
            self._cgroup.remove()
        with self._lock:
            if self._pidfd is not None:
                os.close(self._pidfd)
                self._pidfd = None
            if self._slot is not None:
                self._slot.close()
                self._slot = None
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def _begin_restore(self) -> PendingRestore:
        return self._runsc.begin_restore(self._options, self.id, self.folder)

    def _cancel_restore(self) -> None:
        if self._pending_restore is not None:
            self._pending_restore.cancel()
            self._pending_restore = None

    def _wait_for(self, name: str, deadline: float) -> None:
        with self._lock:
            if self._pidfd is None:
                raise SandboxFailedError("executor", "the sandbox was destroyed")
            # A copy, because another thread may destroy the sandbox meanwhile.
            pidfd = os.dup(self._pidfd)
        try:
            self._waiter.wait(self.control_dir / name, pidfd=pidfd, deadline=deadline)
        except ProcessEndedError as error:
            raise self._failed("executor", f"{error}{self._executor_failure()}") from error
        except OSError as error:
            raise self._failed("executor", f"the executor is not ready: {error}{self._executor_failure()}") from error
        finally:
            os.close(pidfd)

    def _connect(self, deadline: float) -> socket.socket:
        # Through /proc, because a socket's path may have 107 bytes at most and this one's folder is the operator's.
        directory = os.open(self.control_dir, os.O_PATH | os.O_DIRECTORY)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            connection.connect(f"/proc/self/fd/{directory}/{control.SOCKET}")
        except BaseException:
            connection.close()
            raise
        finally:
            os.close(directory)
        return connection

    def _seal(self) -> None:
        # No user code has run yet: from here on the sandbox can put nothing on the host's disk.
        self.control_dir.chmod(0o755)

    def _write_control(self, name: str, text: str) -> None:
        (self.control_dir / name).write_text(text)

    def _read_control(self, name: str) -> bytes:
        # What is in there was made by the sandbox: a link must not lead to a file of the host.
        descriptor = os.open(self.control_dir / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(_MAX_CONTROL_FILE_BYTES)

    def _executor_failure(self) -> str:
        try:
            return ": " + self._read_control(control.FAILURE).decode(errors="replace").strip()
        except OSError:
            return ""

    def _failed(self, step: FailedStep, reason: str) -> SandboxFailedError:
        if (exhausted := self.exhausted()) is not None:
            reason += f" (it ran out of {exhausted.resource}; its limit is {exhausted.limit})"
        return SandboxFailedError(step, reason, tail(self._options.log) + tail(self._options.panic_log))


def new_sandbox_id() -> str:
    """Return an id that no other sandbox of this machine has."""
    return f"s{secrets.token_hex(6)}"
