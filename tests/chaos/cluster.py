"""A cluster of real processes that can be killed, frozen and started again one by one."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from readie.protocol import keys
from readie.stack.teardown import remove_sandboxes
from tests.chaos.clock import Clock
from tests.chaos.wire import Wire
from tests.conftest import ROOT, RedisServer
from tests.local_stack import eventually

READY_SECONDS = 120


class Part:
    """One process of the cluster."""

    def __init__(self, name: str, command: list[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self._command = command
        self._environment = {**os.environ, **environment}
        self._log = log
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """What it has logged, in all its lives."""
        return self._log.read_text(errors="replace")

    @property
    def lives(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start it, which takes a while to work."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, env=self._environment, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def send(self, number: int) -> None:
        """Send it a signal, if it lives."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """End it at once."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self, seconds: float = 60) -> int:
        """Ask it to end and return its exit status."""
        assert self.process is not None
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        return self.process.wait(seconds)


class Cluster:
    """Redis with an append-only file, routers and workers.

    Args:
        folder: for logs and the append-only file.
        data: flavor and generation.
        routers: how many.
        workers: how many.
        slots: of each worker.
        wire: between the parts and Redis, if anything is.
        environment: settings of the parts.
    """

    def __init__(
        self,
        folder: Path,
        data: Path,
        *,
        routers: int = 1,
        workers: int = 1,
        slots: int = 4,
        wire: Wire | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.clock = Clock(folder)
        options = ("--appendonly", "yes", "--appendfsync", "everysec")
        self.redis = RedisServer(folder, *options, environment=self.clock.environment)
        # One level lower than need be, for who wants to mount something there.
        self.run_folder = Path("/run/readie") / hashlib.sha256(os.fsencode(folder)).hexdigest()[:8] / "w"
        if wire is not None:
            wire.lead_to(self.redis.port)
        self.url = wire.url if wire else self.redis.url
        python = [sys.executable, "-m"]
        settings = {
            "READIE_REDIS_URL": self.url,
            "READIE_DATA": str(data),
            "READIE_RUN": str(self.run_folder),
            "PYTHONUNBUFFERED": "1",
            **(environment or {}),
        }
        self.routers = [
            Part(name, [*python, "router"], settings, folder / f"{name}.log")
            for name in (f"router{number}" for number in range(1, routers + 1))
        ]
        self.workers = [
            Part(name, [*python, "workers", "--name", name, "--slots", str(slots)], settings, folder / f"{name}.log")
            for name in (f"worker{number}" for number in range(1, workers + 1))
        ]
        self.client = Redis.from_url(self.redis.url, socket_timeout=5)

    @property
    def parts(self) -> list[Part]:
        return [*self.routers, *self.workers]

    def start(self) -> None:
        """Start everything; returns when it works."""
        self.redis.start()
        for part in self.parts:
            part.start()
        for worker in self.workers:
            self.wait_for_worker(worker)

    def entry(self, worker: Part) -> dict[bytes, bytes]:
        """Return a worker's entry in Redis."""
        with contextlib.suppress(RedisError):
            return dict(self.client.hgetall(keys.worker(node_name(worker))))
        return {}

    def wait_for_worker(self, worker: Part, but_not: bytes = b"") -> bytes:
        """Wait until a worker has announced itself, with another incarnation than ``but_not``; return that."""
        entry = eventually(
            lambda: (found := self.entry(worker)) and found[b"incarnation"] != but_not and found,
            f"{worker.name} is there: {worker.log[-3000:]}",
            READY_SECONDS,
        )
        return bytes(entry[b"incarnation"])

    def stop(self) -> None:
        """End everything and remove what it left."""
        for part in self.parts:
            part.send(signal.SIGCONT)
        for part in self.parts:
            part.kill()
        self.redis.stop()
        self.client.close()
        remove_sandboxes(self.run_folder)
        with contextlib.suppress(OSError):
            self.run_folder.parent.rmdir()


class RedisFile:
    """A copy of the append-only file of a Redis: what a machine that loses power has on its disk."""

    def __init__(self, cluster: Cluster) -> None:
        self._folder = cluster.folder / "appendonlydir"
        self._copy = cluster.folder / f"copy-{time.monotonic_ns()}"
        shutil.copytree(self._folder, self._copy)

    def restore(self, redis: RedisServer) -> None:
        """Kill Redis and start it from the copy."""
        redis.stop()
        shutil.rmtree(self._folder)
        shutil.move(self._copy, self._folder)
        redis.start()


def node_name(worker: Part) -> str:
    """Return a worker's name in Redis."""
    return f"{worker.name}@{socket.gethostname()}"
