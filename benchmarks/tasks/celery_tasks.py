"""Celery's."""

from celery import Celery

from . import URL


def make(url: str) -> Celery:
    """Return an app with the task."""
    app = Celery("plain", broker=url, backend=url, set_as_current=False)
    app.conf.task_default_queue = "plain"

    @app.task(name="size", shared=False)
    def size(argument: bytes) -> int:
        return len(argument)

    return app


app = make(URL)
