"""What is done to a cluster."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from redis.exceptions import RedisError

from readie.stack.processes import all_processes, arguments
from tests.chaos.cluster import Cluster, Part, RedisFile
from tests.chaos.wire import Wire


class Stage(Protocol):
    """What faults are done to."""

    cluster: Cluster
    wire: Wire
    images: Path
    """Folder of a checkpoint whose image may be damaged."""
    lost_moments: list[tuple[float, float]]
    """From when to when Redis lost all it had been told."""
    lost_workers: list[float]
    """When a worker that might have told it again was taken away."""

    @property
    def clients(self) -> list[Part]:
        """The load's processes."""

    def revive(self, part: Part) -> None:
        """Start a part that was ended again."""


def _freeze(part: Part, seconds: float) -> None:
    part.send(signal.SIGSTOP)
    time.sleep(seconds)
    part.send(signal.SIGCONT)


def kill_worker(stage: Stage, chance: random.Random) -> str:
    """SIGKILL."""
    worker = chance.choice(stage.cluster.workers)
    stage.lost_workers.append(time.time())
    worker.kill()
    time.sleep(chance.random())
    stage.revive(worker)
    return worker.name


def freeze_worker(stage: Stage, chance: random.Random) -> str:
    """SIGSTOP for shorter or longer than its lease."""
    worker, seconds = chance.choice(stage.cluster.workers), chance.choice([1, 5, 16])
    stage.lost_workers.append(time.time())
    _freeze(worker, seconds)
    return f"{worker.name} for {seconds} s"


def restart_worker(stage: Stage, chance: random.Random) -> str:
    """SIGTERM, sometimes twice."""
    worker = chance.choice(stage.cluster.workers)
    twice = chance.random() < 0.3
    worker.send(signal.SIGTERM)
    if twice:
        time.sleep(1)
        worker.send(signal.SIGTERM)
    assert worker.process is not None
    status = worker.process.wait(60)
    # One that has only just begun to start has no handler yet.
    assert status in (0, -signal.SIGTERM), f"{worker.name} ended with status {status} after SIGTERM"
    stage.revive(worker)
    return f"{worker.name}{' at once' if twice else ''}"


def kill_router(stage: Stage, chance: random.Random) -> str:
    """SIGKILL."""
    router = chance.choice(stage.cluster.routers)
    router.kill()
    time.sleep(chance.random())
    stage.revive(router)
    return router.name


def freeze_router(stage: Stage, chance: random.Random) -> str:
    """SIGSTOP for shorter or longer than its lease."""
    router, seconds = chance.choice(stage.cluster.routers), chance.choice([1, 4, 9])
    _freeze(router, seconds)
    return f"{router.name} for {seconds} s"


def kill_client(stage: Stage, chance: random.Random) -> str:
    """SIGKILL."""
    client = chance.choice(stage.clients)
    client.kill()
    stage.revive(client)
    return client.name


def freeze_client(stage: Stage, chance: random.Random) -> str:
    """SIGSTOP."""
    client, seconds = chance.choice(stage.clients), chance.choice([1, 3])
    _freeze(client, seconds)
    return f"{client.name} for {seconds} s"


def _sandbox_pids(stage: Stage) -> list[int]:
    mark = b"--root=" + os.fsencode(stage.cluster.run_folder) + b"/"
    return [process.pid for process in all_processes() if any(a.startswith(mark) for a in arguments(process.pid))]


def kill_sandbox_process(stage: Stage, chance: random.Random) -> str:
    """SIGKILL to runsc's gofer, its sentry (and so the executor), or a runsc command."""
    pids = _sandbox_pids(stage)
    if not pids:
        return "none was there"
    pid = chance.choice(pids)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return "one"


def freeze_sandbox_process(stage: Stage, chance: random.Random) -> str:
    """SIGSTOP to the same."""
    pids = _sandbox_pids(stage)
    if not pids:
        return "none was there"
    pid = chance.choice(pids)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(2)
        os.kill(pid, signal.SIGCONT)
    return "one for 2 s"


def kill_redis(stage: Stage, chance: random.Random) -> str:
    """SIGKILL, and its start some time later."""
    seconds = chance.choice([0.1, 1, 4])
    stage.cluster.redis.stop()
    # While its disk is busy, it answers up to two seconds before it writes.
    stage.lost_moments.append((time.time() - 2, time.time()))
    time.sleep(seconds)
    stage.cluster.redis.start()
    return f"for {seconds} s"


def rewind_redis(stage: Stage, chance: random.Random) -> str:
    """Power failure: what was told to Redis in the last second is on no disk."""
    begin = time.time()
    file = RedisFile(stage.cluster)
    time.sleep(0.5 + chance.random() / 2)
    file.restore(stage.cluster.redis)
    stage.lost_moments.append((begin, time.time()))
    return f"by {time.time() - begin:.1f} s"


def freeze_redis(stage: Stage, chance: random.Random) -> str:
    """SIGSTOP."""
    process = stage.cluster.redis.process
    assert process is not None
    seconds = chance.choice([1, 3, 8])
    process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    process.send_signal(signal.SIGCONT)
    return f"for {seconds} s"


def refuse_writes(stage: Stage, chance: random.Random) -> str:
    """Redis is out of memory, or a replica of nobody."""
    redis = stage.cluster.client
    seconds = chance.choice([1, 4])
    how = chance.choice(["memory", "replica"])
    if how == "memory":
        redis.config_set("maxmemory", "1mb")
    else:
        redis.execute_command("REPLICAOF", "127.0.0.1", "1")
    time.sleep(seconds)
    redis.config_set("maxmemory", "0")
    redis.execute_command("REPLICAOF", "NO", "ONE")
    return f"{how} for {seconds} s"


def cut_wire(stage: Stage, chance: random.Random) -> str:
    """Break connections to Redis in the middle of what they carry."""
    links = stage.wire.links()
    some = chance.sample(links, min(len(links), 4))
    for link in some:
        link.cut(after_bytes=chance.randrange(1, 3000))
    return f"{len(some)} of {len(links)}"


def cut_all_wires(stage: Stage, chance: random.Random) -> str:
    """Break every connection to Redis at once."""
    stage.wire.cut_all()
    return "all"


def silence_wire(stage: Stage, chance: random.Random) -> str:
    """Leave what waits for messages without any, and without a word."""
    return f"{stage.wire.silence(chance.choice([b'BRPOP', b'BLMOVE', b'SUBSCRIBE']))} connections"


def fill_disk(stage: Stage, chance: random.Random) -> str:
    """No space where the sandboxes' files are."""
    seconds = chance.choice([1, 4])
    filler = stage.cluster.run_folder.parent / "filler"
    with contextlib.suppress(OSError), filler.open("wb") as file:
        while True:
            file.write(bytes(1 << 20))
            file.flush()
    time.sleep(seconds)
    filler.unlink(missing_ok=True)
    return f"for {seconds} s"


def damage_image(stage: Stage, chance: random.Random) -> str:
    """Another content in a checkpoint's image."""
    image = chance.choice(sorted(stage.images.glob("*.img")))
    before = image.read_bytes()
    image.unlink()
    image.write_bytes(chance.randbytes(min(len(before), 1 << 20)))
    time.sleep(4)
    image.unlink()
    image.write_bytes(before)
    return image.name


def jump_clock(stage: Stage, chance: random.Random) -> str:
    """Redis' clock is set, by more than a lease."""
    seconds = chance.choice([-30, 30])
    stage.cluster.clock.jump(seconds)
    return f"by {seconds} s"


Fault = Callable[[Stage, random.Random], str]

FAULTS: Final[tuple[Fault, ...]] = (
    kill_worker,
    freeze_worker,
    restart_worker,
    kill_router,
    freeze_router,
    kill_client,
    freeze_client,
    kill_sandbox_process,
    kill_sandbox_process,
    freeze_sandbox_process,
    kill_redis,
    rewind_redis,
    freeze_redis,
    refuse_writes,
    cut_wire,
    cut_wire,
    cut_all_wires,
    silence_wire,
    fill_disk,
    damage_image,
    jump_clock,
)


def do(fault: Fault, stage: Stage, chance: random.Random) -> str:
    """Do it; a Redis that is not there when it is asked for makes it nothing."""
    try:
        return fault(stage, chance)
    except RedisError as error:
        return f"not done: {error}"
