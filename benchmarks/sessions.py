"""What a call in a warm session takes: ``python benchmarks/sessions.py [--calls N] [--data FOLDER]``.

A stack of its own (Redis, router, worker; root) with one open session. On the same Redis, in turns of fifty calls:

* ``warm``: ``f()`` of a function that returns nothing, in the session: client, router, worker and sandbox;
* ``celery``: ``task.delay().get()`` of a Celery task that returns nothing: Celery's own client, default settings, a
  worker with the same thread pool;
* ``floor``: three processes that pass lists on (LPUSH; BLMOVE, then LPUSH and LREM in MULTI; BRPOP and LPUSH): the
  least that a client, a reliable router and a worker can do;
* ``ready``: the same function without a session, while a ready sandbox waits for it.

Printed are p50 and p99 of each, their ratios, the phases of a warm call, and the commands that Redis gets for one.
"""

import argparse
import contextlib
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from celery import Celery
from redis import Redis

import readie
from readie import remote, session
from readie.home import default_data

TURN = 50
ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent

app = Celery("plain", broker=os.environ.get("PLAIN_URL"), backend=os.environ.get("PLAIN_URL"))
app.conf.task_default_queue = "plain"


@app.task
def plain() -> None:
    """Do nothing, as a Celery task."""


@remote
def nothing() -> None:
    """Do nothing, in a sandbox."""


def route(url: str, name: str) -> None:
    """Pass items on without a moment at which one could be lost."""
    redis = Redis.from_url(url)
    while True:
        item = redis.blmove(f"{name}:submit", f"{name}:taken", 0, "RIGHT", "LEFT")
        with redis.pipeline(transaction=True) as pipe:
            pipe.lpush(f"{name}:worker", item)
            pipe.lrem(f"{name}:taken", -1, item)
            pipe.execute()


def work(url: str, name: str) -> None:
    """Answer items."""
    redis = Redis.from_url(url)
    while True:
        _, item = redis.brpop([f"{name}:worker"])
        redis.lpush(f"{name}:reply", item)


@contextlib.contextmanager
def floor(url: str) -> Iterator[Callable[[], Any]]:
    """Run the two processes; give the client's part."""
    name = f"floor-{uuid.uuid4().hex[:6]}"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=target, args=(url, name), daemon=True) for target in (route, work)]
    for process in processes:
        process.start()
    redis = Redis.from_url(url)

    def call() -> None:
        redis.lpush(f"{name}:submit", "x" * 600)
        redis.brpop([f"{name}:reply"])

    yield call
    for process in processes:
        process.kill()
        process.join()


@contextlib.contextmanager
def plain_worker(url: str, slots: int) -> Iterator[Callable[[], Any]]:
    """Run a plain Celery worker; give the client's part."""
    environment = {**os.environ, "PLAIN_URL": url, "CELERY_CUSTOM_WORKER_POOL": "workers.pool:TaskPool"}
    options = ["-P", "custom", "-c", str(slots), "-Q", "plain", "-n", "plain@%h", "--loglevel", "ERROR"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [BIN / "celery", "-A", "sessions", "worker", *options],
            cwd=Path(__file__).parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        client = Celery("plain", broker=url, backend=url)
        client.conf.task_default_queue = "plain"
        signature = client.signature("sessions.plain")
        try:
            signature.delay().get(timeout=60)
            yield lambda: signature.delay().get(timeout=60)
        finally:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def stack(data: Path) -> Iterator[str]:
    """Run a local stack; give its Redis' URL."""
    home = Path(tempfile.mkdtemp(prefix="readie-benchmark-"))
    environment = {**os.environ, "READIE_HOME": str(home), "READIE_DATA": str(data), "READIE_LOG_LEVEL": "INFO"}
    try:
        subprocess.run(
            [BIN / "readie", "up", "-d", "--workers", "1", "--slots", "4"],
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        os.environ["READIE_HOME"] = str(home)
        client = readie.Client(home=home)
        yield client.settings.redis_url
    finally:
        subprocess.run([BIN / "readie", "down"], env=environment, check=False, stdout=subprocess.DEVNULL)
        shutil.rmtree(home, ignore_errors=True)


def measure(ways: dict[str, Callable[[], Any]], calls: int) -> dict[str, list[float]]:
    """Return the milliseconds of each call of each way; the ways take turns."""
    milliseconds: dict[str, list[float]] = {name: [] for name in ways}
    for call in ways.values():
        for _ in range(TURN):
            call()
    while len(milliseconds[next(iter(ways))]) < calls:
        for name, call in ways.items():
            for _ in range(TURN):
                began = time.perf_counter()
                call()
                milliseconds[name].append(1000 * (time.perf_counter() - began))
    return milliseconds


def commands(url: str, call: Callable[[], Any], calls: int) -> Counter[str]:
    """Return how many of each command clients send to Redis during these calls (what scripts do is not counted)."""
    counts: Counter[str] = Counter()
    redis = Redis.from_url(url)
    scripts = _script_names(url)
    end = uuid.uuid4().hex
    with redis.monitor() as monitor:
        commands = monitor.listen()
        for _ in range(calls):
            call()
        redis.echo(end)
        for command in commands:
            text = str(command["command"])
            if end in text:
                break
            if command["client_type"] != "lua":
                words = text.split()
                name = words[0].upper()
                counts[f"{name} {scripts.get(words[1], words[1][:8])}" if name == "EVALSHA" else name] += 1
    redis.close()
    return counts


def _script_names(url: str) -> dict[str, str]:
    from readie.ledger.sessions import SessionLedger

    return {script.sha: name for name, script in SessionLedger(Redis.from_url(url))._scripts.items()}  # noqa: SLF001


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure calls in a warm session.")
    parser.add_argument("--calls", type=int, default=500, help="of each kind (default: 500)")
    parser.add_argument("--ready-calls", type=int, default=15, help="that meet a ready sandbox (default: 15)")
    parser.add_argument("--data", type=Path, default=default_data(), help="flavors and generations")
    arguments = parser.parse_args()
    with stack(arguments.data.resolve()) as url:
        readie.configure(redis_url=url)
        with session() as opened, floor(url) as bare, plain_worker(url, 4) as task:
            warm = nothing.options(session=opened)
            warm()
            times = measure({"warm": warm, "celery": task, "floor": bare}, arguments.calls)
            counted = commands(url, warm, 200)
            phases = [_phases(warm.spawn()) for _ in range(200)]
        times["ready"] = ready(arguments.ready_calls)
    p50 = {name: statistics.median(values) for name, values in times.items()}
    for name, values in times.items():
        print(
            f"{name:8} p50 {p50[name]:8.2f} ms   "
            f"p99 {sorted(values)[len(values) * 99 // 100]:8.2f} ms   calls {len(values)}"
        )
    print(f"warm / celery   {p50['warm'] / p50['celery']:.2f}")
    print(f"warm / floor    {p50['warm'] / p50['floor']:.2f}")
    print(f"ready / warm    {p50['ready'] / p50['warm']:.2f}")
    print("phases of a warm call (p50, ms):")
    print("  " + "  ".join(f"{name} {1000 * statistics.median(p[name] for p in phases):.2f}" for name in phases[0]))
    print("commands for one warm call, from all processes:")
    for name, count in counted.most_common():
        if count >= 20:
            print(f"  {count / 200:6.2f}  {name}")


def _phases(call: readie.Call[None]) -> dict[str, float]:
    call.result(60)
    return call.report().phases


def ready(calls: int) -> list[float]:
    """Return the milliseconds of calls that met a ready sandbox."""
    milliseconds = []
    while len(milliseconds) < calls:
        began = time.perf_counter()
        call = nothing.spawn()
        call.result(60)
        took = 1000 * (time.perf_counter() - began)
        if call.report().pool == "ready":
            milliseconds.append(took)
        time.sleep(0.8)
    return milliseconds


if __name__ == "__main__":
    main()
