"""A Redis with the users of ``readie acl`` knows after a restart what it knew before."""

import subprocess
from pathlib import Path

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from readie.acl import ROLES, acl_file
from readie.connection import connect
from readie.ledger import Ledger
from readie.protocol.envelope import CallState
from readie.stack.programs import find_redis_server, free_port
from tests.local_stack import eventually


def test_calls_survive_a_restart_though_nobody_has_all_rights(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "users.acl").write_text(acl_file(["alice"], dict.fromkeys((*ROLES, "alice"), "password")))
    command = [
        find_redis_server(None),
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--dir",
        str(tmp_path),
        "--save",
        "",
    ]
    command += ["--appendonly", "yes", "--aclfile", str(tmp_path / "users.acl")]

    def answers(redis: Redis) -> bool:
        try:
            return bool(redis.ping())
        except RedisConnectionError:
            return False

    for run in (1, 2):
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            with connect(f"redis://alice:password@127.0.0.1:{port}/0", name="test", retries=0) as redis:
                eventually(lambda: answers(redis), "Redis answers", seconds=20)
                ledger = Ledger(redis)
                if run == 1:
                    ledger.submit("alice.1", "message", "alice.client", expires_seconds=1000)
                assert ledger.state("alice.1")[0] is CallState.QUEUED
        finally:
            server.terminate()
            server.wait()
