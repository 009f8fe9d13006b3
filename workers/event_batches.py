"""Celery's events, in batches: one message for many instead of three for every call."""

from typing import Any, Final

from celery import bootsteps

from readie.protocol import keys

_BATCH_SECONDS: Final = 0.1


class EventBatches(bootsteps.StartStopStep):  # type: ignore[misc]
    """Sends what the dispatcher has gathered ten times a second, where Celery would after every event."""

    requires = ("celery.worker.consumer.events:Events",)

    def __init__(self, consumer: Any, **_: Any) -> None:
        super().__init__(consumer)
        self._timer: Any = None

    def start(self, consumer: Any) -> None:
        """Take the sending over."""
        dispatcher = consumer.event_dispatcher
        dispatcher.on_send_buffered = None
        consumer.app.tasks[keys.TASK_NAME].events = dispatcher
        self._timer = consumer.timer.call_repeatedly(_BATCH_SECONDS, dispatcher.flush)

    def stop(self, _consumer: Any) -> None:
        """Leave it: the dispatcher sends the rest when it is closed."""
        if self._timer is not None:
            self._timer.cancel()

    terminate = stop
