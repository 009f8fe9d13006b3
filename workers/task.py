"""The one Celery task, ``readie.execute``: hands a call to the runner of this process."""

from typing import TYPE_CHECKING, Any

from celery import Task
from celery.exceptions import Ignore
from celery.utils.log import get_task_logger

from readie.protocol import keys, task
from readie.protocol.call import CallHeader
from readie.protocol.codes import ErrorCode

if TYPE_CHECKING:
    from readie.ledger import Ledger

    from .runner import Runner

_log = get_task_logger(__name__)


class CallFailed(Exception):  # noqa: N818 - shown by name in Flower
    """Makes Celery's events tell that a call failed; its result is stored already."""


class ExecuteTask(Task):  # type: ignore[misc]
    """Runs one call. ``runner`` and ``ledger`` are set before the worker consumes anything."""

    name = keys.TASK_NAME
    ignore_result = True
    throws = (CallFailed,)
    runner: "Runner | None" = None
    ledger: "Ledger | None" = None
    """For the control commands, whose thread must not wait long."""

    def run(self, argument: str | None) -> None:
        """Run the call of the current message; ``argument`` is its payload when that is small."""
        headers: dict[str, Any] = self.request.headers or {}
        content = headers.get(task.HEADER) or getattr(self.request, task.HEADER, None)
        try:
            header = CallHeader.model_validate(content)
            payload = task.decode_argument(argument)
        except ValueError as error:
            _log.error("dropped a message that is no call: %s", error)
            return
        assert self.runner is not None
        failure = self.runner.run(header, payload)
        if failure is not None and failure.code is ErrorCode.CANCELLED:
            with self.app.events.default_dispatcher(hostname=self.request.hostname) as events:
                events.send("task-revoked", uuid=header.id, terminated=True, signum="SIGKILL", expired=False)
            raise Ignore
        if failure is not None:
            raise CallFailed(f"{failure.type or failure.code.value}: {failure.message}")
