"""Local stacks for tests, driven through the command line as a user would."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from redis import Redis

import readie
from readie.client import default_client
from readie.protocol import keys

BIN = Path(sys.executable).parent


def eventually(condition: Callable[[], Any], what: str, seconds: float = 60) -> Any:
    """Return the first true value of ``condition``; the test fails when there is none in time."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)
    return value


@contextlib.contextmanager
def default_client_of(stack: LocalStack) -> Iterator[None]:
    """Let this process's default client use ``stack`` for a while, and then again what it used before."""
    before = default_client().settings.redis_url
    readie.configure(redis_url=stack.redis_url)
    yield
    readie.configure(redis_url=before)


class LocalStack:
    """A home and the commands on it. Nothing needs to run."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.run_folder = Path("/run/readie") / hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:8]
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("READIE_")},
            "READIE_HOME": str(home),
            "READIE_DATA": str(home / "data"),
            "COLUMNS": "80",
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command that goes on."""
        return subprocess.Popen(
            [BIN / "readie", *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command; never a traceback, whatever its end."""
        done = subprocess.run(
            [BIN / "readie", *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert "Traceback" not in done.stdout + done.stderr
        return done

    def up(self, *arguments: str) -> None:
        done = self.run("up", "-d", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr

    def status(self) -> dict[str, Any]:
        done = self.run("status", "--json")
        status: dict[str, Any] = json.loads(done.stdout)
        return status

    @property
    def state(self) -> dict[str, Any]:
        """Content of ``stack.json``."""
        state: dict[str, Any] = json.loads((self.home / "stack.json").read_text())
        return state

    def pid(self, part: str) -> int:
        """Return a part's pid as the file has it; 0 between two starts."""
        process = self.state["parts"][part]["process"]
        return int(process["pid"]) if process else 0

    @property
    def supervisor_pid(self) -> int:
        return int(self.state["supervisor"]["pid"])

    def redis(self) -> Redis:
        return Redis.from_url(self.redis_url)

    def kill_and_await_restart(self, part: str) -> None:
        """Kill a part; return when its next process works."""
        before = self.pid(part)
        os.kill(before, signal.SIGKILL)
        eventually(
            lambda: self.pid(part) not in {0, before} and self.state["parts"][part]["ready"],
            f"{part} is started again",
        )

    def processes(self) -> list[str]:
        """Return the command line of every process that belongs to this stack, its sandboxes as well."""
        marks = (f"READIE_HOME={self.home}\0".encode(), f"--root={self.run_folder}/".encode())
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    command = (entry / "cmdline").read_bytes()
                    if any(mark in (entry / "environ").read_bytes() + command for mark in marks):
                        found.append(command.replace(b"\0", b" ").decode())
        return found

    @property
    def redis_url(self) -> str:
        """URL of its Redis."""
        return str(self.state["redis_url"])

    def worker_log(self) -> str:
        """Return what its workers logged."""
        return "".join(path.read_text() for path in sorted((self.home / "logs").glob("worker*.log")))

    def down(self) -> None:
        """Stop it."""
        done = self.run("down")
        assert done.returncode == 0, done.stdout + done.stderr

    def assert_nothing_is_left(self) -> None:
        assert self.processes() == []
        assert not (self.home / "stack.json").exists()
        assert not self.run_folder.exists()
        name = str(self.run_folder).replace("/", "%2F")
        assert [path for path in Path("/sys/fs/cgroup").rglob(f"{name}*") if path.is_dir()] == []


def ready(stack: LocalStack) -> dict[str, int]:
    """Return which ready sandboxes the one worker tells."""
    redis = stack.redis()
    (name,) = (entry.decode() for entry in redis.zrange(keys.WORKERS, 0, -1))
    text = redis.hget(keys.worker(name), "ready")
    redis.close()
    return dict(json.loads(text)) if text else {}
