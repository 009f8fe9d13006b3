"""What one would pick instead, each with a worker of its own on the same Redis, set up as one would for short tasks.

Each has four slots where it has such, keeps results in Redis, and pickles where JSON can't carry bytes. Polling
intervals are short where there is one to set: with its default of half a second, arq would show that and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from redis import Redis

Wait = Callable[[], Any]
Submit = Callable[[bytes], Wait]
"""Sends one task with an argument; what it returns waits for the result."""

SLOTS = 4
_BIN = Path(sys.executable).parent
_ROOT = Path(__file__).parent.parent
_URL = "READIE_BENCHMARK_REDIS_URL"
_SECONDS = 60


def size(argument: bytes) -> int:
    """Return the length: all that a task does."""
    return len(argument)


@contextlib.contextmanager
def _worker(url: str, *command: str) -> Iterator[None]:
    """Run a worker; what it says is shown when it ends by itself."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, cwd=_ROOT, env={**os.environ, _URL: url}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            yield
        finally:
            ended = process.poll()
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if ended is not None:
                log.seek(0)
                sys.stderr.write(log.read().decode(errors="replace")[-3000:])


@contextlib.contextmanager
def celery(url: str) -> Iterator[Submit]:
    """Celery, its thread pool, default settings."""
    from benchmarks.tasks import celery_tasks

    app = celery_tasks.make(url)
    options = ["-P", "threads", "-c", str(SLOTS), "-n", "plain@%h", "--loglevel", "ERROR"]
    with _worker(url, str(_BIN / "celery"), "-A", "benchmarks.tasks.celery_tasks", "worker", *options):
        task = app.tasks["size"]
        yield lambda argument: partial(task.delay(argument).get, timeout=_SECONDS)
        app.close()


@contextlib.contextmanager
def dramatiq(url: str) -> Iterator[Submit]:
    """Dramatiq, one process with threads, its Redis result backend."""
    from benchmarks.tasks import dramatiq_tasks

    actor = dramatiq_tasks.make(url)
    options = ["-p", "1", "-t", str(SLOTS), "--skip-logging"]
    with _worker(url, str(_BIN / "dramatiq"), "benchmarks.tasks.dramatiq_tasks", *options):
        yield lambda argument: partial(actor.send(argument).get_result, block=True, timeout=1000 * _SECONDS)
        actor.broker.close()


@contextlib.contextmanager
def rq(url: str) -> Iterator[Submit]:
    """RQ, its worker that runs jobs in its own process; its default one forks for each."""
    from rq import Queue

    redis = Redis.from_url(url)
    queue = Queue("rq", connection=redis)

    def submit(argument: bytes) -> Wait:
        job = queue.enqueue(size, argument)

        def wait() -> Any:
            result = job.latest_result(timeout=_SECONDS)
            assert result is not None
            return result.return_value

        return wait

    with _worker(url, str(_BIN / "rq"), "worker", "--url", url, "-w", "rq.worker.SimpleWorker", "--quiet", "rq"):
        yield submit
        redis.close()


@contextlib.contextmanager
def arq(url: str) -> Iterator[Submit]:
    """Arq: one process, an event loop. Polls every 5 ms for jobs and every 1 ms for results."""
    from arq import create_pool

    from benchmarks.tasks import arq_tasks

    with _worker(url, str(_BIN / "arq"), "benchmarks.tasks.arq_tasks.WorkerSettings"), asyncio.Runner() as loop:
        pool = loop.run(create_pool(arq_tasks.settings(url)))

        def submit(argument: bytes) -> Wait:
            job = loop.run(pool.enqueue_job("size", argument))
            assert job is not None
            return lambda: loop.run(job.result(timeout=_SECONDS, poll_delay=0.001))

        yield submit
        loop.run(pool.aclose())


@contextlib.contextmanager
def taskiq(url: str) -> Iterator[Submit]:
    """Taskiq: one worker process, Redis lists, results looked for every 0.5 ms."""
    from benchmarks.tasks import taskiq_tasks

    task = taskiq_tasks.make(url)
    options = ["--workers", "1", "--log-level", "ERROR", "--max-threadpool-threads", str(SLOTS)]
    with (
        _worker(url, str(_BIN / "taskiq"), "worker", "benchmarks.tasks.taskiq_tasks:broker", *options),
        asyncio.Runner() as loop,
    ):
        loop.run(task.broker.startup())

        def submit(argument: bytes) -> Wait:
            sent = loop.run(task.kiq(argument))
            return lambda: loop.run(sent.wait_result(check_interval=0.0005, timeout=_SECONDS)).return_value

        yield submit
        loop.run(task.broker.shutdown())


@contextlib.contextmanager
def process_pool(url: str) -> Iterator[Submit]:
    """``concurrent.futures.ProcessPoolExecutor``: no Redis, no other machine, no isolation."""
    del url
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        yield lambda argument: partial(pool.submit(size, argument).result, _SECONDS)


def _serve(url: str, name: str) -> None:
    with Redis.from_url(url, socket_timeout=None) as redis:
        while popped := redis.brpop([f"{name}:tasks"]):
            redis.lpush(f"{name}:answers", len(popped[1]))


@contextlib.contextmanager
def redis_lists(url: str) -> Iterator[Submit]:
    """Two processes and two Redis lists: LPUSH there, LPUSH back, and nothing that could be left out."""
    name = f"lists-{uuid.uuid4().hex[:6]}"
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(url, name), daemon=True)
    process.start()
    with Redis.from_url(url, socket_timeout=None) as redis:

        def submit(argument: bytes) -> Wait:
            redis.lpush(f"{name}:tasks", argument)
            return lambda: redis.brpop([f"{name}:answers"])

        try:
            yield submit
        finally:
            process.kill()
            process.join()


PEERS: dict[str, Callable[[str], contextlib.AbstractContextManager[Submit]]] = {
    "celery": celery,
    "dramatiq": dramatiq,
    "rq": rq,
    "arq": arq,
    "taskiq": taskiq,
    "process pool": process_pool,
    "redis lists": redis_lists,
}
