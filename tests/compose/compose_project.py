"""This checkout's compose.yaml on the Docker Engine that the environment names."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from typing import Any

from readie.stack.programs import free_port
from tests.conftest import ROOT

KILL_MAIN = "import os; [os.kill(int(pid), 9) for pid in open('/proc/1/task/1/children').read().split()]"
"""Kills what a container is there for, from the inside: as when it crashes, and not as when somebody stops it."""


class Project:
    """One deployment, under a name and a port of its own."""

    def __init__(self) -> None:
        self.name = f"readie-test-{os.getpid()}"
        self.flower_port = free_port()
        own = {"READIE_FLAVORS": "./examples/flavors", "FLOWER_PORT": str(self.flower_port), "RUNSC_SOURCE": "path"}
        self.environment = {**os.environ, **own}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command of docker compose that goes on."""
        return subprocess.Popen(
            ["docker", "compose", "--project-name", self.name, *arguments],
            env=self.environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def compose(self, *arguments: str) -> str:
        """Run a command of docker compose; return its output."""
        with self.start(*arguments) as process:
            output, errors = process.communicate(timeout=600)
        assert process.returncode == 0, f"{' '.join(arguments)}\n{output}\n{errors}"
        return output

    def containers(self, service: str) -> list[dict[str, Any]]:
        """Return what Docker knows of each container of a service."""
        ids = self.compose("ps", "--all", "--quiet", service).split()
        if not ids:
            return []
        shown = subprocess.run(["docker", "inspect", *ids], capture_output=True, text=True, check=True)
        containers: list[dict[str, Any]] = json.loads(shown.stdout)
        return containers

    def healthy(self, service: str) -> bool:
        """Return whether all containers of a service are."""
        return all(one["State"].get("Health", {}).get("Status") == "healthy" for one in self.containers(service))

    def client(self, *arguments: str) -> subprocess.Popen[str]:
        """Start one of ``calls.py``, in a client's container."""
        return self.start("run", "--rm", "--no-TTY", "client", "python", "tests/compose/calls.py", *arguments)

    def call(self, *arguments: str) -> Any:
        """Return what one of ``calls.py`` tells."""
        with self.client(*arguments) as process:
            output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, output + errors
        return json.loads(output)

    def inspect(self, command: str) -> dict[str, Any]:
        """Return what the workers answer to a `celery inspect`."""
        output = self.compose(
            "exec", "--no-TTY", "worker", *("celery", "--app", "workers.app", "inspect", command, "--json")
        )
        answers: dict[str, Any] = json.loads(output.splitlines()[-1])
        return answers

    def kill_main(self, container: dict[str, Any]) -> None:
        """Kill a container's process."""
        subprocess.run(["docker", "exec", container["Id"], "python", "-c", KILL_MAIN], check=False, capture_output=True)

    def worker_name(self, container: dict[str, Any]) -> str:
        """Return the name that the worker in a container goes by since its last start."""
        shown = subprocess.run(["docker", "logs", container["Id"]], capture_output=True, text=True, check=True)
        return str(re.findall(r"(worker\d+@compose) ready", shown.stdout + shown.stderr)[-1])

    def flower_status(self, path: str, password: str | None = None) -> int:
        """Return the HTTP status that Flower answers with."""
        try:
            with urllib.request.urlopen(self._request(path, password), timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def flower(self, path: str) -> Any:
        """Return what Flower's API answers to who knows the password."""
        password = self.compose("exec", "--no-TTY", "flower", "cat", "/run/secrets/flower-password")
        with urllib.request.urlopen(self._request(path, password), timeout=10) as answer:
            return json.load(answer)

    def _request(self, path: str, password: str | None) -> urllib.request.Request:
        request = urllib.request.Request(f"http://127.0.0.1:{self.flower_port}{path}")
        if password is not None:
            request.add_header("Authorization", f"Basic {base64.b64encode(f'readie:{password}'.encode()).decode()}")
        return request
