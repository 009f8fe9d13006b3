"""One call from the claim to the stored result. Threads of the pool run this side by side."""

import contextlib
import dataclasses
import logging
import uuid
from collections.abc import Callable, Sequence

from redis.exceptions import RedisError

from readie.failures import retry_after
from readie.ledger import Claim
from readie.ledger.streams import StreamLedger
from readie.monitoring.log_lines import about_call
from readie.protocol import keys
from readie.protocol.call import CallHeader
from readie.protocol.codes import ErrorCode
from readie.protocol.dead_letter import DeadLetter
from readie.protocol.envelope import Failure
from readie.protocol.signing import BadSignatureError, Keyring, result_part
from readie.sizes import format_bytes

from .control import RunningCall, RunningCalls, StoppedError
from .ends import Ends
from .executor.wire import FrameTooLargeError, WireError
from .outcome import Outcome
from .output import MOVED_ON, CallOutput, MovedOnError
from .packages.build import PackagesError
from .patience import Patience
from .reporting import end_of, report_of, start_of
from .run import Phases, Run
from .sandbox.cgroup import LimitError
from .sandbox.connection import CallResult, ConnectionLostError
from .sandbox.conversation import UnwantedError
from .sandbox.sandbox import SandboxFailedError
from .sandbox.starter import Started
from .sandbox_death import failure_of_death, failure_of_limit
from .serving import Serving
from .sessions import Sessions
from .watching import Attempt, AttemptEnd, Watcher, tell

_log = logging.getLogger(__name__)

_ERROR_CODES = {
    "raised": ErrorCode.REMOTE,
    "deserialization": ErrorCode.REMOTE,
    "serialization": ErrorCode.SERIALIZATION,
}

_UNREAD = Failure(code=ErrorCode.CANCELLED, message="stopped, because nobody read its values any more")


class Runner:
    """Runs calls in sandboxes.

    Args:
        ledger: where calls are claimed and ended.
        serving: gives sandboxes and the images to restore in them.
        calls: where each call can be stopped while it runs.
        sessions: the sandboxes that stay from call to call.
        ends: where they are stored.
        patience: how long to wait for Redis.
        keyring: what payloads must be signed with, and results are.
        worker: this worker's name.
        max_result_bytes: largest result.
        log_bytes: how much of what a call prints is kept.
        watchers: are told how each attempt went.
        stale_message: called for each message that means nothing any more.
    """

    def __init__(
        self,
        ledger: StreamLedger,
        serving: Serving,
        calls: RunningCalls,
        sessions: Sessions,
        *,
        ends: Ends,
        patience: Patience,
        keyring: Keyring,
        worker: str,
        max_result_bytes: int,
        log_bytes: int,
        watchers: Sequence[Watcher] = (),
        stale_message: Callable[[], None] = lambda: None,
    ) -> None:
        self._ledger = ledger
        self._serving = serving
        self._calls = calls
        self._sessions = sessions
        self._ends = ends
        self._patience = patience
        self._keyring = keyring
        self._worker = worker
        self._max_result_bytes = max_result_bytes
        self._log_bytes = log_bytes
        self._watchers = watchers
        self._stale_message = stale_message

    def run(self, header: CallHeader, payload: bytes | None) -> Outcome | None:
        """Run a call that was placed here and store its end; ``None`` for a message that means nothing any more."""
        placement = header.placement
        if placement is None:
            return None
        with about_call(header.id), self._calls.enter(header.id, placement.attempt) as call:
            if call is not None and self._ends.of(header.id, placement.attempt) is None:
                # One that was stopped before its claim is given back with the others that were not begun.
                return None if call.stopped else self._run(header, payload, call)
        self._stale_message()
        # A Redis that has lost its last moments delivers again what was delivered.
        _log.info("call=%s: attempt %d was begun here before, dropped", header.id, placement.attempt)
        return None

    def _run(self, header: CallHeader, payload: bytes | None, call: RunningCall) -> Outcome | None:
        token = uuid.uuid4().hex
        claimed = self._patience.repeat(lambda: self._ledger.claim(header, token), f"claim of call {header.id}")
        if claimed is None:
            self._stale_message()
            _log.info("call=%s: a late or doubled message, dropped", header.id)
            return None
        call.runs = True
        claim, stored = claimed
        phases = Phases()
        with contextlib.ExitStack() as hold:
            stage = hold.enter_context(self._serving.use())
            run = Run(header, stage, hold, phases, call)
            try:
                self._execute(run, stored if header.payload_by_reference else payload)
            except Exception as error:
                _log.exception("call=%s: the worker failed", header.id)
                run.failure = Failure(code=ErrorCode.SANDBOX_DIED, message=f"the worker failed to run it: {error!r}")
            if call.stopped:
                run.failure, run.value = call.stopped, b""
            call.runs = False
            try:
                self._leave_session(run)
                end = self._retry(run, claim) or self._store(run, claim)
            finally:
                if run.started is not None and run.session is None:
                    stage.supply.discard(run.started)
        tell(self._watchers, Attempt(header, end, run.failure, report_of(run, claim, self._worker)))
        return Outcome(run.failure, start_of(run.started))

    def _leave_session(self, run: Run) -> None:
        """Let the next call have the session, which the ledger gives it when this one has ended."""
        if run.session is None:
            return
        # A word to cancel the call that comes from now on must not kill what is the next call's.
        if run.call.leave_sandbox() and not run.sandbox_of_no_use:
            self._sessions.give_back(run.session, at_rest=run.at_rest)
        else:
            self._sessions.lose(run.session, run.header.id, run.failure.code.value if run.failure else "cancelled")

    def _execute(self, run: Run, payload: bytes | None) -> None:
        header = run.header
        if payload is None:
            run.failure = Failure(code=ErrorCode.EXPIRED, message="the call's payload is no longer in Redis")
            return
        try:
            self._keyring.check_payload(header, payload)
        except BadSignatureError as error:
            self._refuse(run, error)
            return
        try:
            started = self._start(run)
        except StoppedError:
            started = None
        except PackagesError as error:
            run.failure = Failure(code=ErrorCode.PACKAGE_INSTALL, message=str(error))
            return
        except SandboxFailedError as error:
            _log.error("call=%s: no sandbox: %s\n%s", header.id, error.reason, error.log_tail)
            run.failure = Failure(code=ErrorCode.SANDBOX_DIED, message=f"no sandbox could be started: {error.reason}")
            return
        if started is not None:
            self._call(run, started, payload)

    def _refuse(self, run: Run, error: BadSignatureError) -> None:
        call_id = run.header.id
        _log.error("call %s: refused: %s", call_id, error)
        run.failure = Failure(code=ErrorCode.INVALID_REQUEST, message=f"the worker refuses the call: {error}")
        with contextlib.suppress(RedisError):
            self._ledger.bury(DeadLetter.of(b"", keys.payload(call_id), f"call {call_id}: {error}"), forged=True)

    def _call(self, run: Run, started: Started, payload: bytes) -> None:
        header = run.header
        sandbox, connection, timeout = started.sandbox, started.connection, header.options.timeout_seconds
        output = CallOutput(
            self._ledger,
            header,
            run.call,
            lambda: self._ends.uphold(run.call.id, run.call.attempt),
            self._keyring,
            keep_bytes=self._log_bytes,
        )
        output.printed_bytes = run.printed_bytes
        run.sandbox_of_no_use = True
        try:
            connection.layer = run.layer.path if run.layer else None
            if started.start != "warm":
                sandbox.limit(memory_bytes=header.options.memory_bytes, cpu=header.options.cpu)
            if not self._enter_session(run, started):
                return
            result = connection.call(
                header.id,
                header.name,
                [payload],
                timeout=timeout,
                max_result_bytes=self._max_result_bytes,
                listener=output,
                session=run.session is not None,
            )
        except TimeoutError:
            sandbox.kill()
            run.phases.end("execute")
            run.failure = Failure(code=ErrorCode.TIMEOUT, message=f"stopped after its timeout of {timeout:g} s")
        except FrameTooLargeError as error:
            run.phases.end("execute")
            run.failure = Failure(code=ErrorCode.RESOURCE_EXHAUSTED, message=_too_large(error))
        except (UnwantedError, MovedOnError, StoppedError) as error:
            sandbox.kill()
            run.phases.end("execute")
            run.failure = MOVED_ON if isinstance(error, MovedOnError) else _UNREAD
        except (ConnectionLostError, WireError) as error:
            run.phases.end("execute")
            run.failure = failure_of_death(sandbox, error)
        except LimitError as error:
            run.failure = failure_of_limit(header.options.memory_bytes, error)
        else:
            self._take(run, result)
            run.sandbox_of_no_use = False
            if output.stopped:
                run.failure, run.value = _UNREAD, b""
        finally:
            run.printed_bytes = output.printed_bytes
            run.yielded = output.yielded_values if header.streams else None
            output.close()
            if run.session is None or run.sandbox_of_no_use:
                connection.close()

    def _enter_session(self, run: Run, started: Started) -> bool:
        """Bind the sandbox to the session that the call opens; ``False``: the session has ended meanwhile."""
        if run.header.session is None or run.session is not None:
            return True
        run.session = self._sessions.open(run.header, started, run.stage, run.hold)
        if run.session is None:
            message = f"session {run.header.session.id} ended before its sandbox was up"
            run.failure = Failure(code=ErrorCode.SESSION_EXPIRED, message=message)
            return False
        self._sessions.serve(run.session, self.run)
        return True

    def _take_session(self, run: Run) -> Started | None:
        run.session = session = self._sessions.take(run.header)
        if session is None:
            self._sessions.not_here(run.header)
            run.failure = Failure(code=ErrorCode.SESSION_LOST, message="the session was lost: its sandbox is gone")
            return None
        run.started = started = dataclasses.replace(session.started, start="warm", fallback=None)
        run.call.runs_in(started.sandbox)
        for phase in ("sandbox", "start", "connect"):
            run.phases.end(phase)
        return started

    def _start(self, run: Run) -> Started | None:
        """Return the call's sandbox; ``None``: its session is not here any more."""
        placement = run.header.placement
        assert placement is not None
        self._take_packages(run)
        if placement.sandbox is not None:
            return self._take_session(run)
        checkpoint_id = self._without_conflict(run, placement.checkpoint_id)
        run.started = started = run.stage.supply.start(checkpoint_id, run.call, run.phases.end)
        if started.fallback is not None:
            assert placement.checkpoint_id is not None
            _log.warning(
                "call=%s: can't restore %s, starting cold: %s\n%s",
                run.header.id,
                placement.checkpoint_id,
                started.fallback.reason,
                started.fallback.log_tail,
            )
            self._avoid(placement.checkpoint_id)
        return started

    def _take_packages(self, run: Run) -> None:
        """Get the call its packages, if it has any, for as long as its sandbox lives."""
        packages = run.header.options.packages
        if not packages:
            return
        run.layer = run.stage.layers.take(packages, run.call, lambda text: self._say(run, text))
        run.hold.callback(run.layer.close)
        run.packages = str(run.layer)
        run.phases.end("packages")

    def _without_conflict(self, run: Run, checkpoint_id: str | None) -> str | None:
        """Return the checkpoint, or ``None`` when it has imported modules of which the call brings others."""
        conflicts = run.layer.conflicts(run.stage.imported_by(checkpoint_id)) if run.layer else []
        if not conflicts:
            return checkpoint_id
        run.packages = f"{run.packages}; started without {checkpoint_id}, which has its own {', '.join(conflicts)}"
        return None

    def _say(self, run: Run, text: str) -> None:
        """Tell the worker's log and, before anything the function prints, the call's own."""
        _log.info("call=%s: %s", run.header.id, text)
        header, line = run.header, f"readie: {text}\n".encode()
        assert header.placement is not None
        with contextlib.suppress(RedisError):
            before = run.printed_bytes
            if self._ledger.publish_output(header.id, header.placement.attempt, before, line, self._log_bytes):
                run.printed_bytes += len(line)

    def _avoid(self, checkpoint_id: str) -> None:
        """Have routers choose something else here for a while; that they don't is no reason to fail a call."""
        with contextlib.suppress(RedisError):
            self._ledger.avoid(self._worker, checkpoint_id)

    def _take(self, run: Run, result: CallResult) -> None:
        run.phases.end("load")
        inside = {"execute": result.header.execute_seconds, "dump": result.header.dump_seconds}
        run.phases["load"] -= sum(inside.values())
        run.phases.update(inside)
        part = result_part("value" if result.error is None else "error")
        run.value = self._keyring.seal(run.header.id, part, result.value)
        run.ignored_globals = tuple(result.header.ignored_globals)
        run.at_rest = result.header.at_rest
        if result.error is not None:
            error = result.error
            run.failure = Failure(
                code=_ERROR_CODES[error.code],
                type=f"{error.module}.{error.type}",
                bases=tuple(error.bases),
                flavor=run.header.options.flavor,
                message=error.message,
                traceback=error.traceback,
            )

    def _retry(self, run: Run, claim: Claim) -> AttemptEnd | None:
        """Have a call that failed run again, if its caller wants that; else ``None``."""
        header, placement = run.header, run.header.placement
        assert placement is not None
        retry = run.failure and retry_after(header.options.retries, claim.begun, run.failure)
        if not retry:
            return None
        again = self._patience.repeat(
            lambda: self._ledger.retry(header.id, placement.attempt, *retry), f"retry of call {header.id}"
        )
        if not again:
            return None
        run.phases.end("store")
        _log.info(
            "call=%s: attempt %d failed, %.3g s until the next", header.id, placement.attempt, retry.delay_seconds
        )
        return AttemptEnd.RETRIED

    def _store(self, run: Run, claim: Claim) -> AttemptEnd:
        run.phases.end("store")
        end = end_of(run, claim, self._worker)
        ended = self._ends.store(end)
        run.phases.end("store")
        if ended is None:
            _log.warning(
                "call=%s: attempt %d was no longer current; its result was dropped", run.header.id, end.attempt
            )
            return AttemptEnd.STALE
        _log.info(
            "call=%s: %s, start: %s, %.0f ms in the worker",
            run.header.id,
            end.envelope.state.value,
            start_of(run.started),
            1000 * (ended.at - claim.started_at),
        )
        return AttemptEnd(ended.state.value)


def _too_large(error: FrameTooLargeError) -> str:
    return (
        f"the result is {format_bytes(error.size_bytes)} when pickled, above this worker's limit of "
        f"{format_bytes(error.limit_bytes)}; return less, or raise READIE_MAX_RESULT_BYTES there"
    )
