"""One run: a cluster under load, faults at random moments, and then the question whether all promises were kept."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from redis import Redis

import readie
from readie.client import Client
from readie.protocol import keys
from tests.chaos.check import Called, findings, outcomes, read_journals
from tests.chaos.cluster import Cluster, Part
from tests.chaos.executions import Executions
from tests.chaos.faults import FAULTS, do
from tests.chaos.load import LONGEST_SECONDS, outcome_of
from tests.chaos.wire import Wire
from tests.local_stack import eventually

_BUNDLE_BYTES = 64 << 20
_STAYING = {
    keys.WORKERS,
    keys.ROUTERS,
    keys.CAPACITY,
    keys.STALE,
    "_kombu.binding.celery.pidbox",
    "_kombu.binding.celeryev",
    "_kombu.binding.reply.celery.pidbox",
}
"""Keys that may be there without an expiry when nothing is to be done; workers' own direct bindings as well."""


@dataclass
class Result:
    """What a run has shown."""

    seed: int
    calls: list[Called] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)


class Run:
    """One run; everything it makes is gone at its end.

    Args:
        seed: of everything random.
        data: flavor and generation; only read.
        seconds: how long there are faults.
        clients: processes that call.
        say: is told what happens.
        keep: folder for the logs, when they shall be kept.
    """

    def __init__(
        self, seed: int, data: Path, seconds: float, *, clients: int = 2, say: Callable[[str], None], keep: Path | None
    ) -> None:
        self._chance = random.Random(seed)
        self._seconds = seconds
        self._say = say
        self._keep = keep
        self._result = Result(seed)
        self._folder = Path(tempfile.mkdtemp(prefix="readie-chaos-"))
        self._executions = Executions()
        self.lost_moments: list[tuple[float, float]] = []
        self.lost_workers: list[float] = []
        self.wire = Wire()
        own_data, self.images = _own_generation(data, self._folder / "data")
        self.cluster = Cluster(
            self._folder, own_data, routers=2, workers=2, slots=4, wire=self.wire, environment={"READIE_CLIENT": ""}
        )
        self._number_of_clients = clients
        self._clients: list[Part] = []
        self._started_clients = 0

    @property
    def clients(self) -> list[Part]:
        """The load's processes."""
        return self._clients

    def revive(self, part: Part) -> None:
        """Start a part again; a client's successor is another client."""
        if part in self._clients:
            self._clients.remove(part)
            self._start_client()
        else:
            part.start()

    def run(self) -> Result:
        """Do it all."""
        disk = self.cluster.run_folder.parent
        disk.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_BUNDLE_BYTES}", "readie-chaos", disk], check=True)
        try:
            self.cluster.start()
            for _ in range(self._number_of_clients):
                self._start_client()
            self._do_faults()
            self._settle()
            self._look_at_what_is_left()
        except Exception as error:
            self._result.findings.append(f"the suite itself: {error!r}")
            self._say(f"the suite failed: {error!r}")
        finally:
            self._clean()
        return self._result

    def _start_client(self) -> None:
        self._started_clients += 1
        name = f"client{self._started_clients}"
        arguments = [self.wire.url, str(self._folder / f"{name}.journal"), str(self._executions.folder), name]
        command = [sys.executable, "-m", "tests.chaos.load", *arguments, str(self._chance.randrange(10**6))]
        client = Part(name, command, {}, self._folder / f"{name}.log")
        self._clients.append(client)
        client.start()

    def _do_faults(self) -> None:
        chance, ends = self._chance, time.monotonic() + self._seconds
        while time.monotonic() < ends:
            time.sleep(0.5 + chance.random() * 4)
            fault = chance.choice(FAULTS)
            began = time.monotonic()
            what = do(fault, self, chance)
            self._result.faults[fault.__name__] += 1
            self._say(f"{began - ends + self._seconds:6.1f} s  {fault.__name__}: {what}")
            self._look_at_parts([*self.cluster.parts, *self._clients])

    def _look_at_parts(self, parts: list[Part]) -> None:
        for part in parts:
            if not part.lives:
                status = part.process.poll() if part.process else None
                if status == 1 and "cannot start now: [Errno 28]" in part.log[-500:]:
                    # It was started while the disk was full.
                    self.revive(part)
                    continue
                self._result.findings.append(f"{part.name} ended by itself, status {status}: {part.log[-1000:]}")
                self.revive(part)

    def _settle(self) -> None:
        """Let the calls end, those of killed clients as well."""
        for client in self._clients:
            client.send(signal.SIGTERM)
        deadline = time.monotonic() + LONGEST_SECONDS + 20
        while any(client.lives for client in self._clients) and time.monotonic() < deadline:
            self._look_at_parts(self.cluster.parts)
            time.sleep(0.5)
        self._result.calls = read_journals(self._folder.glob("*.journal"))
        client = Client(redis_url=self.cluster.redis.url)
        for call in self._result.calls:
            if call.id and not call.outcome:
                try:
                    call.outcome = outcome_of(client.get_call(call.id), LONGEST_SECONDS)
                except readie.ReadieError as error:
                    call.outcome = f"{type(error).__name__}: {error}"
        client.close()
        # Whatever was to be told by the kernel has been.
        time.sleep(1)
        self._result.findings += findings(self._result.calls, self._executions.of, self.lost_moments, self.lost_workers)

    def _look_at_what_is_left(self) -> None:
        redis = self.cluster.client
        eventually(lambda: redis.zcard(keys.PENDING) == 0, f"no call is pending: {redis.zrange(keys.PENDING, 0, -1)!r}")
        for worker in self.cluster.workers:
            self.cluster.wait_for_worker(worker)
            if worker.stop() != 0:
                self._result.findings.append(f"{worker.name} did not stop: {worker.log[-1000:]}")
        eventually(lambda: not _owned_by_nobody(redis), f"keys without an owner: {_owned_by_nobody(redis)}")
        for router in self.cluster.routers:
            if router.stop() != 0:
                self._result.findings.append(f"{router.name} did not stop: {router.log[-1000:]}")
        left = [path.name for path in self.cluster.run_folder.iterdir()]
        if left:
            self._result.findings.append(f"left in the run folder: {left}")

    def _clean(self) -> None:
        for client in self._clients:
            client.send(signal.SIGCONT)
            client.kill()
        self.wire.close()
        self._executions.close()
        for part in self.cluster.parts:
            part.send(signal.SIGCONT)
            part.kill()
        for number, finding in enumerate(self._result.findings):
            self._say(f"finding {number + 1}: {finding}")
        if self._keep is not None:
            self._keep.mkdir(parents=True, exist_ok=True)
            for path in [*self._folder.glob("*.log"), *self._folder.glob("*.journal")]:
                shutil.copy(path, self._keep)
        self.cluster.stop()
        subprocess.run(["umount", "-l", self.cluster.run_folder.parent], check=False)
        with contextlib.suppress(OSError):
            self.cluster.run_folder.parent.rmdir()
        shutil.rmtree(self._folder)


def summary(result: Result) -> str:
    """Return a run in a few lines."""
    counts = f"{len(result.calls)} calls, {result.faults.total()} faults, {len(result.findings)} findings"
    lines = [
        f"seed {result.seed}: {counts}",
        "  ended as: " + ", ".join(f"{name} {count}" for name, count in outcomes(result.calls).most_common()),
        "  faults: " + ", ".join(f"{name} {count}" for name, count in sorted(result.faults.items())),
    ]
    return "\n".join([*lines, *(f"  {finding}" for finding in result.findings)])


def _own_generation(data: Path, own: Path) -> tuple[Path, Path]:
    """Return a data folder with a generation that may be damaged, and the folder of the checkpoint to damage."""
    own.mkdir()
    (own / "flavors").symlink_to((data / "flavors").resolve())
    current = (data / "generations" / "default" / "current").resolve()
    generation = own / "generations" / "default" / current.name
    shutil.copytree(current, generation)
    (generation.parent / "current").symlink_to(current.name)
    return own, generation / "checkpoints" / "checkpoint_1"


def _owned_by_nobody(redis: Redis) -> list[str]:
    """Return the keys that stay for ever and should not."""
    names = [name.decode() for name in redis.scan_iter(count=1000)]
    return [
        name
        for name in names
        if name not in _STAYING and not name.startswith("_kombu.binding") and redis.ttl(name) == -1
    ]
