"""The Celery app: ``celery -A workers.app worker -P custom -n NAME@%h -X readie.submit`` (or ``python -m workers``)."""

import os

os.environ.setdefault("CELERY_CUSTOM_WORKER_POOL", "workers.pool:TaskPool")

from celery import Celery

from readie.connection import without_tls
from readie.protocol import keys
from readie.protocol.reading import PlacedReader
from readie.sentinel import broker_url
from readie.settings import ResultSettings

from .event_batches import EventBatches
from .lifecycle import WorkerStep
from .task import ExecuteTask
from .transport import Channel

_settings = ResultSettings()
_url, _tls = without_tls(_settings.redis_url)
_url, _options = broker_url(_url)

app = Celery("readie", broker=_url, backend=_url)
app.conf.update(
    # Messages are wake-ups: the ledger decides what runs, so they are acknowledged early and none is held back.
    # A worker that holds an unacknowledged message when Redis goes away dies (Celery 5.7.0).
    task_acks_late=False,
    worker_disable_prefetch=True,
    worker_prefetch_multiplier=1,
    worker_enable_prefetch_count_reduction=False,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    worker_direct=True,
    task_default_queue=keys.SUBMIT_QUEUE,
    # Nothing but JSON is ever decoded here.
    accept_content=["json"],
    result_accept_content=["json"],
    task_serializer="json",
    result_serializer="json",
    event_serializer="json",
    # Results are written together with the call's record, never by Celery.
    task_ignore_result=True,
    result_expires=3600,
    worker_send_task_events=True,
    event_queue_ttl=5,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport=f"workers.transport:{'SentinelTransport' if _options else 'Transport'}",
    # Flower reads no more of it than this.
    broker_use_ssl=_tls,
    redis_backend_use_ssl=_tls,
    broker_transport_options={
        "socket_timeout": 10,
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
        "health_check_interval": 25,
        "priority_steps": [0],
        "client_name": "readie-worker",
        **_options,
    },
    result_backend_transport_options=_options,
)
Channel.read_placed = PlacedReader(_settings.keyring, _settings.signature_seconds)
app.register_task(ExecuteTask())
app.steps["worker"].add(WorkerStep)
app.steps["consumer"].add(EventBatches)
