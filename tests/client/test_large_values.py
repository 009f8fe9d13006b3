"""Large arguments and results cost a client a small multiple of their size."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from ending import Cluster
from redis import Redis

import readie
from readie import ResourceExhaustedError, remote
from readie.client import default_client
from readie.protocol import keys
from readie.protocol.payload import decode
from tests.local_stack import eventually

MEGABYTES = 100
PROGRAM = f"""
import os, resource, sys
from readie import remote

@remote
def echo(value): return value

peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
echo.spawn(1)
before = peak()
value = {{kind}}
call = echo.spawn(value)
print(call.id, flush=True)
sent = peak()
del value
value = call.result()
print((sent - before) / {MEGABYTES}e6, (peak() - before) / {MEGABYTES}e6, len(value))
"""


@pytest.fixture
def cluster(redis: Redis, redis_url: str) -> Iterator[Cluster]:
    readie.configure(redis_url=redis_url)
    yield Cluster(redis)
    default_client().close()


@pytest.mark.parametrize(
    "kind", [f"os.urandom({MEGABYTES}_000_000)", f"[os.urandom(1000) for _ in range({MEGABYTES}_000)]"]
)
def test_the_peak_is_about_three_times_the_size(cluster: Cluster, redis_url: str, tmp_path: Path, kind: str) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(kind=kind))
    process = subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "READIE_REDIS_URL": redis_url},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    call_id = process.stdout.readline().strip()
    header = cluster.begin(call_id)
    payload = cluster.redis.get(keys.payload(call_id))
    assert isinstance(payload, bytes)
    _, arguments, *_ = decode(payload)
    import pickle

    (value,), _ = pickle.loads(arguments.data, buffers=arguments.buffers)
    cluster.finish(header, value)
    sent, peak, length = process.stdout.readline().split()
    process.wait(timeout=60)
    assert int(length) == len(value)
    assert float(sent) < 3.3
    assert float(peak) < 3.3


def test_what_is_above_the_limit_is_refused_before_it_is_sent(cluster: Cluster, redis_url: str) -> None:
    readie.configure(redis_url=redis_url, max_payload_bytes=1_000_000)

    @remote
    def count(data: bytes) -> int:
        return len(data)

    with pytest.raises(ResourceExhaustedError, match=r"above the limit of 976\.6 KiB"):
        count.spawn(os.urandom(1_000_001))
    assert not cluster.redis.exists(keys.PENDING)
    count.spawn(os.urandom(900_000))
    assert cluster.redis.zcard(keys.PENDING) == 1


def test_values_of_every_size_around_the_parts_arrive_whole(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("readie.ledger.ledger._PART_BYTES", 10_000)

    @remote
    def echo(data: bytes) -> bytes:
        return data

    for size in (9_000, 9_999, 10_000, 10_001, 20_000, 123_456):
        data = os.urandom(size)
        call = echo.spawn(data)
        header = cluster.begin(call.id)
        stored = cluster.redis.get(keys.payload(call.id))
        assert isinstance(stored, bytes)
        assert data in stored
        assert len(stored) == header.payload_bytes
        assert cluster.redis.ttl(keys.payload(call.id)) > 0
        cluster.finish(header, data)
        assert call.result(timeout=60) == data


def test_many_threads_wait_for_one_large_value(cluster: Cluster) -> None:
    call = remote(len).spawn(b"")
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(call.result(60))) for _ in range(8)]
    for thread in threads:
        thread.start()
    value = os.urandom(20_000_000)
    cluster.finish(cluster.begin(call.id), value)
    eventually(lambda: len(found) == 8, "all have it")
    assert all(each is found[0] for each in found)
    assert found[0] == value
