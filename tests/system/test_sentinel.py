"""Client, router, worker and Celery on a Redis that Sentinels watch, before and after a failover."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError
from redis.sentinel import Sentinel

from readie import Client, ConfigurationError, ReadieError, RemoteFunction
from readie.options import Options
from readie.stack.programs import find_redis_server, free_port
from tests.conftest import ROOT, RedisServer
from tests.local_stack import eventually

MASTER = "of-the-test"
PASSWORD = "of-the-redis"


class Watched:
    """A Redis, a replica of it, and three Sentinels."""

    def __init__(self, folder: Path) -> None:
        self.servers = []
        for name in ("first", "second"):
            (folder / name).mkdir()
            options = ("--requirepass", PASSWORD, "--masterauth", PASSWORD, "--appendonly", "yes")
            server = RedisServer(folder / name, *options)
            server.url = f"redis://:{PASSWORD}@127.0.0.1:{server.port}/0"
            server.start()
            self.servers.append(server)
        first, second = self.servers
        with contextlib.closing(Redis.from_url(second.url)) as replica:
            replica.replicaof("127.0.0.1", first.port)
            eventually(lambda: replica.info("replication")["master_link_status"] == "up", "the replica follows")
        self.ports = [free_port() for _ in range(3)]
        self.sentinels = []
        for port in self.ports:
            configuration = folder / f"{port}.conf"
            configuration.write_text(
                f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
                f"sentinel monitor {MASTER} 127.0.0.1 {first.port} 2\n"
                f"sentinel auth-pass {MASTER} {PASSWORD}\n"
                f"sentinel down-after-milliseconds {MASTER} 1000\n"
                f"sentinel failover-timeout {MASTER} 3000\n"
            )
            command = [find_redis_server(None), str(configuration), "--sentinel"]
            log = (folder / f"{port}.log").open("ab")
            self.sentinels.append(subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL))
        for port in self.ports:
            sentinel = Sentinel([("127.0.0.1", port)])
            eventually(lambda sentinel=sentinel: self.knows_all(sentinel), "the Sentinels know each other")

    @staticmethod
    def knows_all(sentinel: Sentinel) -> bool:
        """Whether a Sentinel knows the replica and both others."""
        with contextlib.suppress(RedisError):
            state = sentinel.sentinels[0].sentinel_master(MASTER)
            return bool(state["num-slaves"] == 1 and state["num-other-sentinels"] == 2)
        return False

    @property
    def url(self) -> str:
        """As Readie takes it."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"sentinel://:{PASSWORD}@{hosts}/0?master={MASTER}"

    def close(self) -> None:
        """End all."""
        for sentinel in self.sentinels:
            sentinel.kill()
            sentinel.wait()
        for server in self.servers:
            server.stop()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """The Redis."""
    watched = Watched(tmp_path_factory.mktemp("sentinel"))
    yield watched
    watched.close()


@pytest.fixture(scope="module")
def environment(
    watched: Watched, data_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Of all processes."""
    run = Path(tempfile.mkdtemp(prefix="readie-"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("READIE_")}
    yield kept | {
        "READIE_REDIS_URL": watched.url,
        "READIE_DATA": str(data_folder),
        "READIE_HOME": str(tmp_path_factory.mktemp("home")),
        "READIE_RUN": str(run),
    }
    run.rmdir()  # the worker has left nothing there


@pytest.fixture(scope="module")
def client(environment: dict[str, str], watched: Watched, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a router and a worker."""
    folder = tmp_path_factory.mktemp("logs")
    processes = []
    for command in (["router"], ["workers", "--name", "worker", "--slots", "2"]):
        log = (folder / f"{command[0]}.log").open("ab")
        processes.append(
            subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT, env=environment, stdout=log, stderr=log)
        )
    client = Client(redis_url=watched.url)
    yield client
    client.close()
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        process.wait(60)
    print(*(path.read_text() for path in folder.iterdir()))


def test_calls_go_on_after_a_failover(client: Client, watched: Watched, environment: dict[str, str]) -> None:
    def double(number: int, seconds: float = 0.0) -> int:
        import time

        time.sleep(seconds)
        return 2 * number

    function = RemoteFunction(double, Options(), client)
    assert function(21) == 42
    running = function.spawn(4, seconds=8)
    eventually(lambda: running.status().state == "running", "it runs")
    (master,) = [
        server
        for server in watched.servers
        if server.port == Sentinel([("127.0.0.1", watched.ports[0])]).discover_master(MASTER)[1]
    ]
    with contextlib.closing(Redis.from_url(master.url)) as redis:
        # What the replica has not got is lost with its master: that is Redis' promise, and not what is tested here.
        redis.wait(1, 10_000)
    master.stop()

    def again() -> int | None:
        with contextlib.suppress(ReadieError):
            return function(5)
        return None

    assert eventually(again, "a call after the failover") == 10
    assert running.result(timeout=60) == 8
    inspected = subprocess.run(
        [Path(sys.executable).parent / "celery", "--app", "workers.app", "inspect", "pools", "--timeout", "20"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 node online" in inspected.stdout, inspected.stdout + inspected.stderr


@pytest.mark.parametrize("url", ["sentinel://", "sentinel://a:x", "sentinel://a/0?name=m", "sentinel://a:1,:2/0"])
def test_a_url_that_is_none_is_refused_with_the_right_form(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"sentinel://.user:password@.host"):
        Client(redis_url=url)


def test_a_redis_in_cluster_mode_is_refused(tmp_path: Path, environment: dict[str, str]) -> None:
    server = RedisServer(tmp_path, "--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    server.start()
    try:
        with contextlib.closing(Redis.from_url(server.url)) as redis:
            redis.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            eventually(lambda: b"cluster_state:ok" in redis.execute_command("CLUSTER", "INFO"), "its slots are served")
        client = Client(redis_url=server.url)
        with pytest.raises(ConfigurationError, match="cluster mode"):
            RemoteFunction(len, Options(), client)([])
        client.close()
        run = Path(tempfile.mkdtemp(prefix="readie-"))
        for command in (["router"], ["workers"]):
            done = subprocess.run(
                [sys.executable, "-m", *command],
                cwd=ROOT,
                env=environment | {"READIE_REDIS_URL": server.url, "READIE_RUN": str(run)},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode != 0
            assert "cluster mode" in done.stderr, done.stderr
        run.rmdir()  # the worker has left nothing there
    finally:
        server.stop()
