"""One call from the claim to the stored result. Threads of the pool run this side by side."""

import base64
import logging
import time
from dataclasses import dataclass

from readie.ledger import Claim, Ledger
from readie.protocol.call import INLINE_LIMIT_BYTES, CallHeader
from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import CallState, Envelope, Failure, Report, Start
from readie.protocol.payload import Buffer

from .executor.wire import FrameTooLargeError, WireError
from .sandbox.connection import CallResult, ConnectionLostError, ExecutorConnection
from .sandbox.sandbox import Sandbox, SandboxFailedError
from .serving import Serving, Stage

_log = logging.getLogger(__name__)

_ERROR_CODES = {
    "raised": ErrorCode.REMOTE,
    "deserialization": ErrorCode.REMOTE,
    "serialization": ErrorCode.SERIALIZATION,
}


class _Phases(dict[str, float]):
    """Seconds by phase; a phase entered twice (a restore that fails, then a cold start) adds up."""

    def __init__(self) -> None:
        super().__init__()
        self._since = time.perf_counter()

    def end(self, name: str) -> None:
        """Close the phase that began where the last one ended."""
        now = time.perf_counter()
        self[name] = self.get(name, 0.0) + now - self._since
        self._since = now


@dataclass(slots=True)
class _Run:
    """What one call gathers on its way; owned by the thread that runs it."""

    header: CallHeader
    stage: Stage
    phases: _Phases
    start: Start | None = None
    checkpoint_id: str | None = None
    fallback: str | None = None
    sandbox: Sandbox | None = None
    failure: Failure | None = None
    value: Buffer = b""


class Runner:
    """Runs calls in sandboxes.

    Args:
        ledger: where calls are claimed and ended.
        serving: gives sandboxes and the images to restore in them.
        worker: this worker's name.
        start_timeout_seconds: longest start or restore.
        keep_seconds: how long results stay.
        max_result_bytes: largest result.
    """

    def __init__(
        self,
        ledger: Ledger,
        serving: Serving,
        *,
        worker: str,
        start_timeout_seconds: float,
        keep_seconds: int,
        max_result_bytes: int,
    ) -> None:
        self._ledger = ledger
        self._serving = serving
        self._worker = worker
        self._start_timeout_seconds = start_timeout_seconds
        self._keep_seconds = keep_seconds
        self._max_result_bytes = max_result_bytes

    def run(self, header: CallHeader, payload: bytes | None) -> Failure | None:
        """Run a call that was placed here and store its end.

        Returns:
            Why it failed, or ``None`` (also for a message that means nothing any more).
        """
        claimed = None if header.placement is None else self._ledger.claim(header)
        if claimed is None:
            _log.info("call %s: a late or doubled message, dropped", header.id)
            return None
        claim, stored = claimed
        phases = _Phases()
        with self._serving.use() as stage:
            run = _Run(header, stage, phases)
            try:
                self._execute(run, stored if header.payload_by_reference else payload)
            except Exception as error:
                _log.exception("call %s: the worker failed", header.id)
                run.failure = Failure(code=ErrorCode.SANDBOX_DIED, message=f"the worker failed to run it: {error!r}")
            try:
                self._store(run, claim)
            finally:
                if run.sandbox is not None:
                    stage.host.discard(run.sandbox)
        return run.failure

    def _execute(self, run: _Run, payload: bytes | None) -> None:
        header = run.header
        if payload is None:
            run.failure = Failure(code=ErrorCode.EXPIRED, message="the call's payload is no longer in Redis")
            return
        try:
            with run.stage.host.starting():
                connection = self._start(run)
        except SandboxFailedError as error:
            _log.error("call %s: no sandbox: %s\n%s", header.id, error.reason, error.log_tail)
            run.failure = Failure(code=ErrorCode.SANDBOX_DIED, message=f"no sandbox could be started: {error.reason}")
            return
        timeout = header.options.timeout_seconds
        try:
            result = connection.call(
                header.id, header.name, [payload], timeout=timeout, max_result_bytes=self._max_result_bytes
            )
        except TimeoutError:
            run.phases.end("execute")
            run.failure = Failure(code=ErrorCode.TIMEOUT, message=f"stopped after its timeout of {timeout:g} s")
        except FrameTooLargeError as error:
            run.phases.end("execute")
            run.failure = Failure(code=ErrorCode.RESOURCE_EXHAUSTED, message=f"the result is too large: {error}")
        except (ConnectionLostError, WireError) as error:
            run.phases.end("execute")
            run.failure = Failure(code=ErrorCode.SANDBOX_DIED, message=f"the sandbox ended during the call: {error}")
        else:
            self._take(run, result)
        finally:
            connection.close()

    def _start(self, run: _Run) -> ExecutorConnection:
        """Restore the chosen checkpoint, or start cold where there is none or it fails."""
        assert run.header.placement is not None
        wanted = run.header.placement.checkpoint_id
        if wanted is not None:
            try:
                return self._restore(run, wanted)
            except SandboxFailedError as error:
                run.fallback = f"{wanted}: {error.reason}"
                _log.warning(
                    "call %s: can't restore %s, starting cold: %s\n%s",
                    run.header.id,
                    wanted,
                    error.reason,
                    error.log_tail,
                )
                if run.sandbox is not None:
                    run.stage.host.discard(run.sandbox)
        run.sandbox = run.stage.host.take()
        run.phases.end("sandbox")
        run.start = "cold"
        run.sandbox.start(timeout=self._start_timeout_seconds)
        return self._connect(run, run.sandbox)

    def _restore(self, run: _Run, checkpoint_id: str) -> ExecutorConnection:
        image = run.stage.image(checkpoint_id)
        if image is None:
            raise SandboxFailedError("this worker has no such checkpoint")
        run.sandbox = run.stage.host.take()
        run.phases.end("sandbox")
        run.sandbox.restore(image, timeout=self._start_timeout_seconds)
        connection = self._connect(run, run.sandbox)
        run.start, run.checkpoint_id = "restored", checkpoint_id
        return connection

    def _connect(self, run: _Run, sandbox: Sandbox) -> ExecutorConnection:
        run.phases.end("start")
        connection = sandbox.wait_ready(timeout=self._start_timeout_seconds)
        run.phases.end("connect")
        return connection

    def _take(self, run: _Run, result: CallResult) -> None:
        run.phases.end("load")
        inside = {"execute": result.header.execute_seconds, "dump": result.header.dump_seconds}
        run.phases["load"] -= sum(inside.values())
        run.phases.update(inside)
        run.value = result.value
        if result.error is not None:
            error = result.error
            run.failure = Failure(
                code=_ERROR_CODES[error.code],
                type=f"{error.module}.{error.type}",
                message=error.message,
                traceback=error.traceback,
            )

    def _store(self, run: _Run, claim: Claim) -> None:
        header, placement = run.header, run.header.placement
        assert placement is not None
        size = len(run.value)
        inline = size <= INLINE_LIMIT_BYTES
        if not inline:
            self._ledger.store_value(header.id, placement.attempt, run.value, self._keep_seconds)
        value = base64.b64encode(run.value).decode("ascii") if inline and size else None
        run.phases.end("store")
        envelope = Envelope(
            id=header.id,
            state=CallState.DONE if run.failure is None else CallState.FAILED,
            failure=run.failure,
            value=value,
            value_bytes=size,
            value_by_reference=not inline,
            submitted_at=claim.submitted_at,
            report=Report(
                worker=self._worker,
                start=run.start,
                checkpoint_id=run.checkpoint_id,
                attempt=placement.attempt,
                reason=placement.reason,
                fallback=run.fallback,
                predicted_seconds=placement.predicted_seconds,
                phases={
                    "queue": claim.placed_at - claim.submitted_at - placement.route_seconds,
                    "route": placement.route_seconds,
                    "deliver": claim.started_at - claim.placed_at,
                    **run.phases,
                },
            ),
        )
        ended = self._ledger.finish(envelope, attempt=placement.attempt, keep_seconds=self._keep_seconds)
        if ended is None:
            _log.warning(
                "call %s: attempt %d was no longer current; its result was dropped", header.id, placement.attempt
            )
            return
        _log.info(
            "call %s: %s, %s start%s, %.0f ms in the worker",
            header.id,
            envelope.state.value,
            run.start or "no",
            f" from {run.checkpoint_id}" if run.checkpoint_id else "",
            1000 * (ended.at - claim.started_at),
        )
