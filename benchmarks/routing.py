"""What one router process does: ``python benchmarks/routing.py [--calls N] [--waiting-calls N] [--steady-calls N]``.

A real Redis and a real router; 50 announced workers with ready sandboxes that begin and end their calls at once, 16
checkpoints, a catalogue of 5,000 modules. Printed are the calls placed per second when the queue is never empty, the
time a call spends in the router at half the required rate (500 a second), the same while many other calls wait, and the
router's memory over many calls.

Redis, router, submitter and workers share the machine: what the router could do with a core of its own is printed too.
"""

import argparse
import contextlib
import multiprocessing
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from scoring import make_catalogue

from readie.ledger.ledger import Ledger
from readie.ledger.result import encode_result
from readie.protocol import keys, task
from readie.protocol.announcement import Announcement
from readie.protocol.call import CallHeader, CallOptions, ImportHints, Placement
from readie.protocol.envelope import CallState, Envelope

ROOT = Path(__file__).parent.parent
WORKERS = 50
SLOTS = 16
FUNCTIONS = 5000
"""Many more than the router remembers the scores of."""
HINTS = 8
AT_ONCE = 100
LATENCY_RATE = 500


def worker_name(number: int) -> str:
    """Return the name of one of the workers."""
    return f"worker{number}@benchmark"


class Scripts:
    """The ledger's scripts, many runs in one round trip."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._shas = {name: redis.script_load(script.script) for name, script in Ledger(redis)._scripts.items()}  # noqa: SLF001

    def run(self, name: str, runs: list[tuple[list[str], list[Any]]]) -> list[Any]:
        """Run one script with each of these keys and arguments."""
        with self._redis.pipeline(transaction=False) as pipe:
            for script_keys, args in runs:
                pipe.evalsha(self._shas[name], len(script_keys), *script_keys, *args)
            return pipe.execute()


def submit(scripts: Scripts, calls: list[ImportHints], flavor: str = "default") -> None:
    """Submit calls as a client does."""
    runs: list[tuple[list[str], list[Any]]] = []
    body = task.encode_body(b"x" * 400)
    for hints in calls:
        call_id = uuid.uuid4().hex
        header = CallHeader(
            protocol=1,
            id=call_id,
            name="module.function",
            python="3.11",
            hints=hints,
            options=CallOptions(flavor=flavor),
            payload_bytes=400,
            payload_by_reference=False,
        )
        item = task.encode(header, body, "benchmark")
        runs.append(([keys.call(call_id), keys.PENDING, keys.SUBMIT_QUEUE], [call_id, item, "client", ""]))
    scripts.run("submit", runs)


def work(url: str, stop: Event, times: Any) -> None:
    """Begin and end the calls of all workers; what was measured of each goes to ``times``."""
    import json

    redis = Redis.from_url(url)
    scripts = Scripts(redis)
    before, after = encode_result(Envelope(id="call", state=CallState.DONE))
    queues = [keys.worker_queue(worker_name(number)) for number in range(WORKERS)]
    while not stop.is_set():
        with redis.pipeline(transaction=False) as pipe:
            for queue in queues:
                pipe.rpop(queue, SLOTS)
            items = [item for reply in pipe.execute() for item in reply or ()]
        if not items:
            time.sleep(0.001)
            continue
        placed = [json.loads(item)["headers"][task.HEADER] for item in items]
        placements = [(header["id"], Placement.model_validate(header["placement"])) for header in placed]
        claims = scripts.run(
            "claim",
            [([keys.call(id_)], [id_, placement.attempt, placement.incarnation]) for id_, placement in placements],
        )
        scripts.run(
            "finish",
            [
                (
                    [keys.call(id_), keys.result(id_), keys.payload(id_), keys.PENDING],
                    [id_, placement.attempt, "done", before, after, 5, "0"],
                )
                for id_, placement in placements
            ],
        )
        times.send(
            [
                (float(claim[0]), float(claim[1]), placement.route_seconds)
                for claim, (_, placement) in zip(claims, placements, strict=True)
                if claim is not None
            ]
        )


@contextlib.contextmanager
def processes(folder: Path) -> Iterator[tuple[Redis, str, "subprocess.Popen[bytes]", Any]]:
    """Run Redis, the workers and a router."""
    beside = Path(sys.executable).parent / "redis-server"
    server = str(beside) if beside.exists() else shutil.which("redis-server")
    assert server, "no redis-server: run `make setup`"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"redis://127.0.0.1:{port}/0"
    quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    database = subprocess.Popen(
        [server, "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(folder)], **quiet
    )
    redis = Redis.from_url(url)
    while True:
        with contextlib.suppress(RedisConnectionError):
            redis.ping()
            break
        time.sleep(0.01)
    catalogue = make_catalogue(random.Random(1))
    ledger = Ledger(redis)
    ledger.publish_catalogue(catalogue)
    for number in range(WORKERS + 1):
        # The last one takes nothing: calls of its flavor wait.
        last = number == WORKERS
        announcement = Announcement(
            name=worker_name(number),
            draining=last,
            incarnation=uuid.uuid4().hex,
            pid=1,
            slots=SLOTS,
            flavor="full" if last else "default",
            python="3.11",
            runsc_version="benchmark",
            generation=catalogue.generation,
            catalogue=catalogue.digest(),
            checkpoints=tuple(checkpoint.id for checkpoint in catalogue.checkpoints),
        )
        ledger.announce(announcement, 100_000, {None: 1, "checkpoint_0": 2, "checkpoint_3": 1})
    stop = multiprocessing.Event()
    receiver, sender = multiprocessing.Pipe(duplex=False)
    workers = multiprocessing.Process(target=work, args=(url, stop, sender))
    workers.start()
    with (folder / "router.log").open("wb") as log:
        router = subprocess.Popen(
            [sys.executable, "-m", "router"], cwd=ROOT, env={**os.environ, "READIE_REDIS_URL": url}, stderr=log, **quiet
        )
    try:
        yield redis, url, router, receiver
    finally:
        router.terminate()
        router.wait()
        stop.set()
        workers.join()
        database.terminate()
        database.wait()


def gather(times: Any, count: int) -> list[tuple[float, float, float]]:
    """Wait for so many calls' (submitted, placed, seconds of the router's decision)."""
    found: list[tuple[float, float, float]] = []
    while len(found) < count:
        assert times.poll(60), f"{len(found)} of {count} calls ended, then nothing for a minute"
        found += times.recv()
    return found


def rss_megabytes(pid: int) -> float:
    """Return the memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def cpu_seconds(pid: int) -> float:
    """Return the processor time a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def flood(scripts: Scripts, redis: Redis, functions: list[ImportHints], times: Any, count: int) -> tuple[float, float]:
    """Submit calls so fast that the queue is never empty; returns placed calls per second, and seconds it took."""
    found: list[tuple[float, float, float]] = []
    started = time.monotonic()
    submitted = 0
    while submitted < count:
        if int(redis.llen(keys.SUBMIT_QUEUE)) < 1000:
            submit(scripts, random.choices(functions, k=AT_ONCE))
            submitted += AT_ONCE
        else:
            time.sleep(0.005)
        while times.poll(0):
            found += times.recv()
    found += gather(times, submitted - len(found))
    placed = sorted(at for _, at, _ in found)
    return (len(placed) - 1) / (placed[-1] - placed[0]), time.monotonic() - started


def trickle(scripts: Scripts, functions: list[ImportHints], times: Any, count: int) -> list[tuple[float, float]]:
    """Submit calls at a steady rate; returns each call's seconds until it was placed, and of the router's decision."""
    found: list[tuple[float, float, float]] = []
    begin = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, begin + number / LATENCY_RATE - time.monotonic()))
        submit(scripts, [random.choice(functions)])
        # Workers that can't tell what they measured would stand still.
        while times.poll(0):
            found += times.recv()
    found += gather(times, count - len(found))
    return [(placed - submitted, decision) for submitted, placed, decision in found]


def show_latency(title: str, waits: list[tuple[float, float]]) -> None:
    """Print how long calls took to be placed."""
    for what, values in (
        ("from the submission to the placement", [wait for wait, _ in waits]),
        ("in the router's hand", [decision for _, decision in waits]),
    ):
        cuts = statistics.quantiles(values, n=1000)
        print(f"{title}, {what}:")
        print(f"    p50 {cuts[499] * 1e3:.2f} ms, p99 {cuts[989] * 1e3:.2f} ms, p99.9 {cuts[998] * 1e3:.2f} ms")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000, help="for the rate")
    parser.add_argument("--latency-calls", type=int, default=10_000, help=f"for the latency, {LATENCY_RATE} a second")
    parser.add_argument("--waiting-calls", type=int, default=20_000, help="that no worker can take, beside the others")
    parser.add_argument("--steady-calls", type=int, default=200_000, help="for the memory")
    arguments = parser.parse_args()
    random.seed(1)
    names = list(make_catalogue(random.Random(1)).modules)
    functions = [
        ImportHints(imports=tuple(f"{name}.Thing" for name in random.sample(names, HINTS))) for _ in range(FUNCTIONS)
    ]
    with tempfile.TemporaryDirectory() as folder, processes(Path(folder)) as (redis, _, router, times):
        scripts = Scripts(redis)
        started = time.monotonic()
        submit(scripts, functions[:1])
        gather(times, 1)
        print(f"start of a router until it has placed a call    {time.monotonic() - started:8.2f} s")
        flood(scripts, redis, functions, times, 2000)
        cpu = cpu_seconds(router.pid)
        rate, _ = flood(scripts, redis, functions, times, arguments.calls)
        per_call = (cpu_seconds(router.pid) - cpu) / arguments.calls
        print(f"calls placed                                    {rate:8.0f} a second")
        print(f"router's processor time for a call              {per_call * 1e3:8.3f} ms, {1 / per_call:.0f} a second")
        steady = trickle(scripts, functions, times, arguments.latency_calls)
        show_latency(f"at {LATENCY_RATE} a second", steady)
        if arguments.waiting_calls:
            for _ in range(0, arguments.waiting_calls, AT_ONCE):
                submit(scripts, random.choices(functions, k=AT_ONCE), flavor="full")
            while int(redis.zcard(keys.WAITING)) < arguments.waiting_calls:
                time.sleep(0.01)
            cpu = cpu_seconds(router.pid)
            rate, _ = flood(scripts, redis, functions, times, arguments.calls)
            per_call = (cpu_seconds(router.pid) - cpu) / arguments.calls
            title = f"while {arguments.waiting_calls} others wait"
            print(f"calls placed {title:34} {rate:8.0f} a second, {per_call * 1e3:.3f} ms processor time")
            show_latency(
                f"at {LATENCY_RATE} a second {title}", trickle(scripts, functions, times, arguments.latency_calls)
            )
        print(f"router's memory before                          {rss_megabytes(router.pid):8.1f} MB")
        chunk = min(arguments.steady_calls, 20_000)
        for done in range(chunk, arguments.steady_calls + 1, chunk) if chunk else ():
            rate, _ = flood(scripts, redis, functions, times, chunk)
            memory = rss_megabytes(router.pid)
            print(f"after {done:7} more calls                         {memory:8.1f} MB, {rate:.0f} calls a second")


if __name__ == "__main__":
    main()
