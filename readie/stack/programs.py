"""The programs a stack consists of: where they are and how they are started."""

import os
import random
import re
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .settings import StackOptions
from .state import Role, StackError

OLDEST_REDIS: Final = (6, 2)
_FIRST_PORT: Final = 15000


@dataclass(frozen=True, slots=True)
class Program:
    """One part, as it is started."""

    name: str
    role: Role
    command: tuple[str, ...]
    environment: Mapping[str, str]


def find_redis_server(configured: Path | None) -> Path:
    """Return the Redis server to start.

    Raises:
        StackError: there is none, or it is too old.
    """
    beside_python = Path(sys.executable).parent / "redis-server"
    on_path = shutil.which("redis-server")
    if configured is not None:
        found = configured
    elif os.access(beside_python, os.X_OK):
        found = beside_python
    elif on_path is not None:
        found = Path(on_path)
    else:
        raise StackError(
            f"redis-server was not found, neither beside {sys.executable} nor on PATH. Install Redis 6.2 or newer "
            "(Debian: apt install redis-server), or set READIE_REDIS_SERVER to its path"
        )
    version = _redis_version(found)
    if version < OLDEST_REDIS:
        raise StackError(f"{found} is Redis {version[0]}.{version[1]}; Redis 6.2 or newer is needed")
    return found.absolute()


def _redis_version(program: Path) -> tuple[int, int]:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = error.strerror if isinstance(error, OSError) else "it does not answer --version"
        raise StackError(f"the Redis server {program} can't be run: {reason}") from error
    match = re.search(r"v=(\d+)\.(\d+)", done.stdout)
    if match is None:
        raise StackError(f"{program} is not a Redis server: it answers --version with {done.stdout[:80]!r}")
    return int(match[1]), int(match[2])


def free_port() -> int:
    """Return a loopback port that nothing listens on.

    It lies outside the range from which the kernel takes outgoing connections' ports: a client that tries to connect
    again while Redis restarts could be given that very port, and Redis could not have it back.
    """
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    candidates = list(range(_FIRST_PORT, first_outgoing)) or [0]
    for port in random.sample(candidates, min(len(candidates), 100)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise StackError("no free port was found for Redis; choose one with --redis-port")


def redis_url(port: int) -> str:
    """Return the URL of the stack's Redis."""
    return f"redis://127.0.0.1:{port}/0"


def flower_url(port: int) -> str:
    """Return the URL of the stack's Flower."""
    return f"http://127.0.0.1:{port}"


def flower_password_file(home: Path) -> Path:
    """Return the file with the password of Flower's user ``readie``."""
    return home / "flower-password"


def make_flower_password(home: Path) -> None:
    """Write a new password, unless there is one."""
    file = flower_password_file(home)
    if not file.exists():
        draft = file.with_name(f".{file.name}")
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(18))
        draft.rename(file)


def programs(options: StackOptions, redis_server: Path, port: int) -> list[Program]:
    """Return the parts of a stack in the order of their start."""
    environment = os.environ | {
        "READIE_HOME": str(options.home),
        "READIE_DATA": str(options.data),
        "READIE_RUN": str(options.run),
        "READIE_REDIS_URL": redis_url(port),
        "PYTHONUNBUFFERED": "1",
    }
    redis_command = (
        str(redis_server),
        *("--bind", "127.0.0.1"),
        *("--port", str(port)),
        *("--dir", str(options.home / "redis")),
        *("--appendonly", "yes"),
        *("--appendfsync", "everysec"),
        *("--save", ""),
        *("--maxmemory-policy", "noeviction"),
    )
    # -P: nothing of the working folder can take the place of a module.
    python = (sys.executable, "-P", "-m")
    slots = () if options.slots is None else ("--slots", str(options.slots))
    workers = {
        f"worker{number}": environment | _metrics_address(environment, number)
        for number in range(1, options.workers + 1)
    }
    return [
        Program("redis", "redis", redis_command, environment),
        Program("router", "router", (*python, "router"), environment),
        *(Program(name, "worker", (*python, "workers", "--name", name, *slots), own) for name, own in workers.items()),
        *([] if options.flower_port is None else [_flower(options, options.flower_port, python, environment)]),
    ]


def _metrics_address(environment: Mapping[str, str], above: int) -> dict[str, str]:
    """Return the setting of a worker: the router has the port that is set, each worker one above it."""
    host, _, port = environment.get("READIE_METRICS_ADDRESS", "").rpartition(":")
    return {"READIE_METRICS_ADDRESS": f"{host}:{int(port) + above}"} if port.strip("0").isdecimal() else {}


def _flower(options: StackOptions, port: int, python: tuple[str, ...], environment: Mapping[str, str]) -> Program:
    password = {"READIE_FLOWER_PASSWORD_FILE": str(flower_password_file(options.home))}
    return Program("flower", "flower", (*python, "workers.flower", f"--port={port}"), {**environment, **password})
