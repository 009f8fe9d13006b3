"""A cluster with all its doors shut: TLS with client certificates, a Redis user for each, and signed calls."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode

from redis import Redis
from redis.exceptions import RedisError

from readie.connection import connect
from readie.stack.programs import find_redis_server, free_port
from readie.stack.readiness import announced_workers, live_routers
from tests.conftest import ROOT
from tests.local_stack import BIN, eventually

KEYS = "old:" + "o" * 32 + ",new:" + "n" * 32


class Authority:
    """A certificate authority of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.certificate = folder / "ca.pem"
        self._openssl("req", "-x509", "-nodes", *self._new_key("ca"), "-subj", "/CN=test authority", "-out", "ca.pem")

    def issue(self, name: str) -> dict[str, str]:
        """Make a certificate for this host, and return the parameters of a URL that name it."""
        self._openssl("req", "-nodes", *self._new_key(name), "-subj", f"/CN={name}", "-out", f"{name}.csr")
        (self.folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
        signed_by = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names", "-days", "1")
        self._openssl("x509", "-req", "-in", f"{name}.csr", *signed_by, "-out", f"{name}.pem")
        return {"ssl_certfile": str(self.folder / f"{name}.pem"), "ssl_keyfile": str(self.folder / f"{name}.key")}

    def _new_key(self, name: str) -> tuple[str, ...]:
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", f"{name}.key")

    def _openssl(self, *arguments: str) -> None:
        program = shutil.which("openssl")
        assert program, "no openssl: install the package openssl"
        done = subprocess.run([program, *arguments], cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


class ShutCluster:
    """Redis, a router, a worker and Flower, each a process."""

    def __init__(self, folder: Path, data: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "authority")
        self.port = free_port()
        self.flower_port = free_port()
        self._run_folder = Path("/run/readie") / hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]
        self._data = data
        self._processes: list[subprocess.Popen[bytes]] = []
        server = self.authority.issue("redis")
        acl, passwords = folder / "users.acl", folder / "passwords.json"
        subprocess.run(
            [BIN / "readie", "acl", "--client", "alice", "--client", "bob", "--write", acl, "--passwords", passwords],
            check=True,
        )
        self._passwords = json.loads(passwords.read_text())
        self._start(
            "redis",
            [
                find_redis_server(None),
                *("--port", "0", "--tls-port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder)),
                *("--tls-cert-file", server["ssl_certfile"], "--tls-key-file", server["ssl_keyfile"]),
                *("--tls-ca-cert-file", str(self.authority.certificate), "--tls-auth-clients", "yes", "--save", ""),
                *("--aclfile", str(acl)),
            ],
        )
        self.url = self.url_of("admin")
        eventually(self._answers, f"Redis answers: {self.log('redis')}")

    def url_of(self, name: str, *, authority: Path | None = None) -> str:
        """Return the URL of a user, with a certificate and the password."""
        query = {"ssl_ca_certs": str(authority or self.authority.certificate), **self.authority.issue(name)}
        return f"rediss://{name}:{self._passwords[name]}@127.0.0.1:{self.port}/0?{urlencode(query)}"

    def redis(self) -> Redis:
        return connect(self.url, name="test")

    def start(self) -> None:
        """Start the rest."""
        (self.folder / "home").mkdir()
        password = self.folder / "flower-password"
        password.write_text("password of Flower")
        python = (sys.executable, "-P", "-m")
        self._start("router", [*python, "router"])
        self._start("worker", [*python, "workers", "--name", "worker1", "--slots", "4"])
        flower = [*python, "workers.flower", f"--port={self.flower_port}"]
        self._start("flower", flower, READIE_FLOWER_PASSWORD_FILE=str(password))
        with self.redis() as redis:
            eventually(lambda: live_routers(redis), f"the router is there: {self.log('router')}")
            eventually(lambda: list(announced_workers(redis)), f"the worker is there: {self.log('worker')}")

    def environment(self, part: str) -> dict[str, str]:
        """Return what a process of this cluster has in its environment."""
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("READIE_")},
            "READIE_HOME": str(self.folder / "home"),
            "READIE_DATA": str(self._data),
            "READIE_RUN": str(self._run_folder),
            "READIE_REDIS_URL": self.url_of(part),
            "READIE_SIGNING_KEYS": KEYS,
            "READIE_LOG_LEVEL": "DEBUG",
            "COLUMNS": "80",
        }

    def log(self, part: str) -> str:
        """Return what a process has said."""
        return (self.folder / f"{part}.log").read_text()

    @property
    def secrets(self) -> list[str]:
        """Every password and key."""
        return [*self._passwords.values(), *(key.partition(":")[2] for key in KEYS.split(","))]

    def readie(self, *arguments: str, user: str = "observer") -> subprocess.CompletedProcess[str]:
        """Run a command as a user."""
        return subprocess.run(
            [BIN / "readie", *arguments],
            env=self.environment(user),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def stop(self) -> None:
        """End all, Redis last."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=30)
            process.kill()
            process.wait()
        if self._run_folder.exists():
            self._run_folder.rmdir()  # the worker has left nothing there

    def _start(self, part: str, command: list[str], **environment: str) -> None:
        own = {} if part == "redis" else self.environment(part)
        with (self.folder / f"{part}.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    command, cwd=ROOT, env={**os.environ, **own, **environment}, stdin=subprocess.DEVNULL, stdout=log,
                    stderr=log,
                )
            )  # fmt: skip

    def _answers(self) -> bool:
        with contextlib.suppress(RedisError), self.redis() as redis:
            return bool(redis.ping())
        return False
