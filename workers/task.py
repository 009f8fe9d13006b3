"""The one Celery task, ``readie.execute``: hands a call to the runner of this process."""

from typing import TYPE_CHECKING, Any

from celery import Task
from celery.exceptions import Ignore
from celery.utils.log import get_task_logger
from celery.worker.request import Request

from readie.protocol import keys, task
from readie.protocol.call import CallHeader

if TYPE_CHECKING:
    from readie.ledger import Ledger

    from .inspection import Inspection
    from .runner import Runner
    from .session_queue import Events
    from .sessions import Sessions

_log = get_task_logger(__name__)


class CallRequest(Request):  # type: ignore[misc]
    """What the worker tells of a task that it has: never the arguments."""

    def info(self, safe: bool = True) -> dict[str, Any]:
        """Return what `celery inspect active` and Flower show; ``safe`` means nothing, it always is."""
        del safe
        described: dict[str, Any] = super().info(safe=True)
        return described


class ExecuteTask(Task):  # type: ignore[misc]
    """Runs one call. ``runner``, ``ledger`` and ``inspection`` are set before the worker consumes anything."""

    name = keys.TASK_NAME
    Request = CallRequest
    ignore_result = True
    runner: "Runner | None" = None
    ledger: "Ledger | None" = None
    """For the control commands, whose thread must not wait long."""
    inspection: "Inspection | None" = None
    sessions: "Sessions | None" = None
    """Whose calls do not come as tasks."""
    events: "Events | None" = None
    """Celery's event dispatcher, for these."""

    def run(self, argument: str | None) -> str | None:
        """Run the call of the current message; ``argument`` is its payload when that is small.

        Returns how the call got its sandbox: Celery's events, and so Flower, show that in the place of a result.
        """
        headers: dict[str, Any] = self.request.headers or {}
        content = headers.get(task.HEADER) or getattr(self.request, task.HEADER, None)
        try:
            header = CallHeader.model_validate(content)
            payload = task.decode_argument(argument)
        except ValueError as error:
            _log.error("dropped a message that is no call: %s", error)
            return None
        assert self.runner is not None
        outcome = self.runner.run(header, payload)
        if outcome is None:
            return None
        if outcome.failure is None:
            return outcome.start
        event, fields = outcome.event()
        self._tell(event, uuid=header.id, **fields)
        # Celery would tell of an exception in this process, and store it in the place of the call's result.
        raise Ignore

    def _tell(self, event: str, **fields: Any) -> None:
        with self.app.events.default_dispatcher(hostname=self.request.hostname) as events:
            events.send(event, **fields)
