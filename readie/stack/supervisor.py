"""The process that keeps a stack running: starts the parts, starts again what ends, stops all in order."""

import logging
import select
import signal
import socket
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from . import logs
from .control import Control, Event
from .processes import Process, adopt_orphans, children, is_alive, reap, send, spawn
from .programs import Program
from .readiness import Readiness, ReadyTest
from .restart import after_end
from .state import Part, StackState, living, remove_state, write_state
from .teardown import remove_sandboxes, stop_in_order

START_SECONDS: Final = 120.0
"""A router or worker that is not ready by then is killed. Redis may load its file for as long as it takes."""
_PROBE_SECONDS: Final = 0.05
_LOG_CHECK_SECONDS: Final = 60.0
_ORPHANS_SECONDS: Final = 10.0

_log = logging.getLogger(__name__)


class Phase(Enum):
    """Where a part is on its way."""

    DUE = "due"
    """To be started when its time has come."""
    STARTING = "starting"
    READY = "ready"
    GIVEN_UP = "given up"


@dataclass
class _Child:
    """A part as the supervisor sees it; times are monotonic seconds."""

    program: Program
    log: Path
    phase: Phase = Phase.DUE
    due_at: float = 0.0
    process: Process | None = None
    is_ready: ReadyTest = lambda _: False
    log_start_bytes: int = 0
    started_at: float = 0.0
    ready_at: float = 0.0
    quick_ends: int = 0
    starts: int = 0
    failure: str | None = None

    def part(self) -> Part:
        return Part(
            role=self.program.role,
            process=self.process,
            ready=self.phase is Phase.READY,
            restarts=max(0, self.starts - 1),
            failure=self.failure,
        )


class Supervisor:
    """One stack. A single thread does everything, in :meth:`run`.

    Args:
        home: must be owned by this process (``state.owning``).
        state: without parts; written to the home as they come and go.
        programs: in the order of their start; the first is Redis.
        readiness: tells when a part works.
        control: the command that started this process.
    """

    def __init__(
        self, home: Path, state: StackState, programs: Sequence[Program], readiness: Readiness, control: Control
    ) -> None:
        self._home = home
        self._state = state
        self._children = [_Child(program, home / "logs" / f"{program.name}.log") for program in programs]
        self._redis = self._children[0]
        self._readiness = readiness
        self._control = control
        self._stop_requests = 0
        self._logs_checked_at = 0.0
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._woken.setblocking(False)

    def run(self) -> int:
        """Run the stack until a signal, the vanishing of its command or a failed start; return the exit status.

        SIGTERM and SIGINT stop the stack in order, a second one at once.
        """
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        adopt_orphans()
        failure: str | None = "the supervisor failed; its log has the reason"
        try:
            failure = self._supervise()
        finally:
            self._stop()
            remove_state(self._home)
            self._control.send(Event(kind="failed", text=failure) if failure else Event(kind="stopped"))
            self._control.close()
        return 1 if failure else 0

    def _supervise(self) -> str | None:
        """Return why the start failed, or ``None`` when the stack was asked to stop."""
        self._save()
        while not self._stop_requests:
            self._note_ends()
            now = time.monotonic()
            for child in self._children:
                self._advance(child, now)
            if self._state.phase == "starting":
                for child in self._children:
                    if child.failure is not None:
                        return child.failure
                if all(child.phase is Phase.READY for child in self._children):
                    self._state = self._state.model_copy(update={"phase": "running"})
                    self._save()
                    self._report(Event(kind="running"))
            self._bound_logs(now)
            self._wait(self._seconds_to_next(time.monotonic()))
        return None

    def _advance(self, child: _Child, now: float) -> None:
        if child.phase is Phase.DUE and now >= child.due_at and self._has_redis(child):
            self._start(child)
        elif child.phase is Phase.STARTING and child.process is not None:
            if child.is_ready(child.process.pid):
                child.phase = Phase.READY
                child.ready_at = now
                self._save()
                self._report(Event(kind="ready", part=child.program.name))
            elif child is not self._redis and now - child.started_at > START_SECONDS:
                _log.error("%s is not ready after %d s", child.program.name, START_SECONDS)
                send(child.process, signal.SIGKILL)

    def _start(self, child: _Child) -> None:
        child.is_ready = self._readiness.test_for(child.program)
        logs.bound(child.log)
        child.log_start_bytes = logs.size(child.log)
        try:
            child.process = spawn(child.program.command, child.program.environment, child.log)
        except OSError as error:
            self._give_up(child, f"{child.program.name} can't be started: {error}")
            return
        child.phase = Phase.STARTING
        child.started_at = time.monotonic()
        child.starts += 1
        self._save()
        _log.info("%s was started, pid %d", child.program.name, child.process.pid)

    def _note_ends(self) -> None:
        by_pid = {child.process.pid: child for child in self._children if child.process is not None}
        for pid, exit_code in reap():
            if (child := by_pid.get(pid)) is not None:
                self._ended(child, exit_code)

    def _ended(self, child: _Child, exit_code: int) -> None:
        name = child.program.name
        how = signal.Signals(-exit_code).name if exit_code < 0 else f"exit status {exit_code}"
        now = time.monotonic()
        decision = after_end(
            exit_code,
            ready_seconds=now - child.ready_at if child.phase is Phase.READY else None,
            quick_ends=child.quick_ends,
            has_redis=self._has_redis(child),
        )
        child.process = None
        if decision is None:
            end = logs.tail(child.log, child.log_start_bytes) or "(it wrote nothing)"
            self._give_up(child, f"{name} can't start ({how}). The end of {child.log}:\n{end}")
            return
        child.phase = Phase.DUE
        child.due_at = now + decision.delay_seconds
        child.quick_ends = decision.quick_ends
        self._save()
        text = f"{name} ended ({how}); it is started again in {decision.delay_seconds:.1f} s"
        self._report(Event(kind="ended", part=name, text=text))

    def _give_up(self, child: _Child, failure: str) -> None:
        child.phase = Phase.GIVEN_UP
        child.failure = failure
        self._save()
        self._report(Event(kind="gave_up", part=child.program.name, text=failure))

    def _stop(self) -> None:
        """Stop the parts in order, then kill what they have left behind; return when no child is left."""
        self._state = self._state.model_copy(update={"phase": "stopping"})
        self._save()
        # Only a request that comes from now on is a second one.
        self._stop_requests = 0
        stop_in_order(
            living(self._state),
            self._wait_gone,
            lambda name: self._report(Event(kind="stopping", part=name)),
        )
        deadline = time.monotonic() + _ORPHANS_SECONDS
        while _reap_all() and time.monotonic() < deadline:
            for process in children():
                send(process, signal.SIGKILL)
            self._wait(_ORPHANS_SECONDS / 50)
        remove_sandboxes(self._state.run)

    def _wait_gone(self, processes: Collection[Process], limit_seconds: float) -> list[Process]:
        deadline = time.monotonic() + limit_seconds
        while True:
            left = [process for process in processes if is_alive(process)]
            remaining = deadline - time.monotonic()
            if not left or remaining <= 0 or self._stop_requests:
                return left
            self._wait(remaining)
            _reap_all()

    def _wait(self, seconds: float) -> None:
        """Sleep until a signal, a word of the command, or the time is up."""
        sources = [self._woken, *([self._control.connection] if self._control.connection else [])]
        readable, _, _ = select.select(sources, [], [], max(0.0, seconds))
        if self._woken in readable:
            received = self._woken.recv(4096)
            self._stop_requests += sum(received.count(number) for number in (signal.SIGTERM, signal.SIGINT))
        if self._control.connection in readable and self._control.command_vanished():
            _log.warning("the command that started the stack is gone")
            if self._state.phase != "stopping":
                self._stop_requests += 1

    def _seconds_to_next(self, now: float) -> float:
        if any(child.phase is Phase.STARTING for child in self._children):
            return _PROBE_SECONDS
        due = [child.due_at - now for child in self._children if child.phase is Phase.DUE and self._has_redis(child)]
        return min([_LOG_CHECK_SECONDS, *due])

    def _has_redis(self, child: _Child) -> bool:
        return child is self._redis or self._redis.phase is Phase.READY

    def _bound_logs(self, now: float) -> None:
        if now - self._logs_checked_at >= _LOG_CHECK_SECONDS:
            self._logs_checked_at = now
            for log in (self._home / "logs").glob("*.log"):
                logs.bound(log)

    def _save(self) -> None:
        parts = {child.program.name: child.part() for child in self._children}
        self._state = self._state.model_copy(update={"parts": parts})
        try:
            write_state(self._home, self._state)
        except OSError as error:
            # A full disk must not end what runs well.
            _log.error("the stack's file could not be written: %s", error)

    def _report(self, event: Event) -> None:
        _log.info("%s %s %s", event.kind, event.part, event.text)
        self._control.send(event)


def _reap_all() -> bool:
    """Reap what has ended; return whether any child is left."""
    for _ in reap():
        pass
    return bool(children())
