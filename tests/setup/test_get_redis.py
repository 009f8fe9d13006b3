from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
import redis
from setup_scripts import SCRIPTS, SYSTEM_PATH, last_line, run, write_program

GET_REDIS = SCRIPTS / "get-redis"
PROGRAM_IS_HERE = Path("/usr/bin/redis-check-rdb").exists()
MAY_INSTALL = Path("/etc/debian_version").exists() and os.geteuid() == 0


def test_the_redis_server_on_path_is_taken(tmp_path: Path) -> None:
    server = write_program(tmp_path / "redis-server", "#!/bin/sh\necho 'Redis server v=6.2.0 sha=0 bits=64'\n")
    result = run(GET_REDIS, PATH=f"{tmp_path}:{SYSTEM_PATH}")
    assert last_line(result) == str(server)
    assert "version 6.2.0" in result.stderr


@pytest.mark.skipif(not (PROGRAM_IS_HERE or MAY_INSTALL), reason="needs Debian's redis-tools, or root to install it")
@pytest.mark.parametrize("version", ["6.0.16", "5.0.14", ""])
def test_a_redis_server_that_is_too_old_is_replaced_by_one_that_serves(tmp_path: Path, version: str) -> None:
    write_program(tmp_path / "redis-server", f"#!/bin/sh\necho 'Redis server v={version} sha=0'\n")
    result = run(GET_REDIS, PATH=f"{tmp_path}:{SYSTEM_PATH}", XDG_CACHE_HOME=str(tmp_path / "cache"))
    server = Path(last_line(result))
    assert "is not Redis 6.2 or newer" in result.stderr
    assert server == tmp_path / "cache" / "readie" / "redis" / "redis-server"

    address = tmp_path / "socket"
    command = [str(server), "--port", "0", "--unixsocket", str(address), "--save", "", "--dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            while not address.exists():
                assert process.poll() is None, "the server ended"
                time.sleep(0.01)
            client = redis.Redis(unix_socket_path=str(address))
            assert client.ping()
            client.close()
        finally:
            process.terminate()
