"""Clusters of this machine for benchmarks: a Redis, a router, a worker or more, and clients of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from celery import Celery
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

import readie
from readie.home import default_data
from readie.options import Options, RemoteOptions
from readie.protocol import keys
from readie.remote_function import RemoteFunction
from readie.sessions import Session
from readie.stack.programs import find_redis_server, free_port

P = ParamSpec("P")
R = TypeVar("R")

BIN = Path(sys.executable).parent
ROOT = Path(__file__).parent.parent
_FULL_SECONDS = 120.0
_LOOK_SECONDS = 0.1
_QUIET_SHARE = 0.08
"""Of all processors' time: by so much more than at its calmest a machine may do when it counts as calm."""


class Cluster:
    """A running local stack.

    Args:
        home: its home.
        redis_url: of its Redis.
    """

    def __init__(self, home: Path, redis_url: str) -> None:
        self.home = home
        self.redis_url = redis_url
        self.redis = Redis.from_url(redis_url)
        self.client = readie.Client(redis_url=redis_url)
        self._celery = Celery("benchmark", broker=redis_url, backend=redis_url, set_as_current=False)

    def remote(self, function: Callable[P, R], options: RemoteOptions | None = None) -> RemoteFunction[P, R]:
        """Return the function as one that runs here; ``readie.remote`` serves one cluster in a process."""
        function.__module__ = "__main__"  # as if a script had it: so it travels as it is, without this package
        return RemoteFunction(function, Options.of(options or {}), self.client)

    def session(self) -> Session:
        """Return a session that opens with its first call."""
        options = Options.of({})
        return Session(
            uuid.uuid4().hex, options, idle_ttl=3600, restart_on_loss=False, attached=False, client=self.client
        )

    def inspect(self, what: str) -> list[Any]:
        """Return what each worker tells; see :mod:`workers.inspection`."""
        # A plain Celery worker on the same Redis would answer, too.
        names = [name.decode() for name in self.redis.zrange(keys.WORKERS, 0, -1)]
        for _ in range(20):
            answers = self._celery.control.broadcast(what, destination=names, reply=True, timeout=3, limit=len(names))
            if answers and len(answers) == len(names):
                return [next(iter(answer.values())) for answer in answers]
        raise TimeoutError(f"not every worker tells its {what}")

    def settle(self, checkpoint_id: str | None = None) -> None:
        """Return when the pools are full, with a ready sandbox of this checkpoint, and the machine has calmed down."""
        deadline = time.monotonic() + _FULL_SECONDS
        while not self._is_full(checkpoint_id):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the pools are not full, with {checkpoint_id}, after {_FULL_SECONDS:g} s")
            time.sleep(_LOOK_SECONDS)
        calm_down()

    def _is_full(self, checkpoint_id: str | None) -> bool:
        workers = self.inspect("pools")
        has_ready = checkpoint_id is None or any(checkpoint_id in pools["ready"] for pools in workers)
        return has_ready and all(
            pools["created"] == pools["created_wanted"] and pools["busy"] == 0 for pools in workers
        )

    def close(self) -> None:
        """Let go of it; it runs on."""
        self.client.close()
        self._celery.close()
        self.redis.close()


@contextlib.contextmanager
def cluster(*, workers: int = 1, slots: int = 4, settings: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Run a local stack with ``settings`` (``READIE_*``)."""
    home = Path(tempfile.mkdtemp(prefix="readie-benchmark-"))
    environment = {
        **os.environ,
        "READIE_DATA": os.environ.get("READIE_DATA", str(default_data())),
        "READIE_HOME": str(home),
        # Open sessions are to leave room for other calls.
        "READIE_SANDBOX_MEMORY_BYTES": str(1 << 30),
        **(settings or {}),
    }
    environment.pop("READIE_REDIS_URL", None)
    quiet: dict[str, Any] = {"env": environment, "stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    try:
        subprocess.run(
            [BIN / "readie", "up", "-d", "--workers", str(workers), "--slots", str(slots)], check=True, **quiet
        )
        one = Cluster(home, readie.Client(home=home).settings.redis_url)
        try:
            yield one
        finally:
            one.close()
    finally:
        subprocess.run([BIN / "readie", "down"], check=False, stderr=subprocess.DEVNULL, **quiet)
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def redis_server() -> Iterator[str]:
    """Run a Redis that keeps nothing on disk; give its URL."""
    program, port = find_redis_server(None), free_port()
    with tempfile.TemporaryDirectory() as folder:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder]
        process = subprocess.Popen([program, *options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        url = f"redis://127.0.0.1:{port}/0"
        try:
            _wait_for_redis(url)
            yield url
        finally:
            process.kill()
            process.wait()


def _wait_for_redis(url: str) -> None:
    deadline = time.monotonic() + 20
    with Redis.from_url(url) as redis:
        while time.monotonic() < deadline:
            with contextlib.suppress(RedisConnectionError):
                redis.ping()
                return
            time.sleep(0.01)
    raise SystemExit("redis-server does not answer")


def megabytes(pid: int) -> float:
    """Return the memory that a process holds; shared pages count in parts (PSS)."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(rollup.partition("\nPss:")[2].split()[0]) / 1024


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class _Calm:
    """How little this machine did at its calmest moment; what else runs here is not waited for."""

    def __init__(self) -> None:
        self._least = 1.0

    def wait(self, seconds: float) -> None:
        """Return when it does about as little as ever, or after so many seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            idle, total = _ticks()
            time.sleep(_LOOK_SECONDS)
            idle_after, total_after = _ticks()
            busy = 1 - (idle_after - idle) / max(1, total_after - total)
            self._least = min(self._least, busy)
            if busy <= self._least + _QUIET_SHARE:
                return


_calm = _Calm()


def calm_down(seconds: float = 5.0) -> None:
    """Return when what has just happened on this machine is over, or after so many seconds."""
    _calm.wait(seconds)


def _ticks() -> tuple[int, int]:
    fields = [int(field) for field in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
    return fields[3] + fields[4], sum(fields)
