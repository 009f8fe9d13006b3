"""``python -m workers.doctor``: whether a worker can run on this machine, as JSON, one list for each check."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from readie.sentinel import server_urls
from readie.stack.check import Check
from workers.checkpoints import Served, load
from workers.preflight import CannotStartError, check_machine
from workers.sandbox.host import SandboxHost
from workers.sandbox.limits import limits_in_force
from workers.sandbox.network.check import check_network
from workers.sandbox.network.gateway import Gateway, NetworkUnavailableError
from workers.sandbox.runsc import Runsc, RunscError
from workers.sandbox.sandbox import SandboxFailedError
from workers.settings import WorkerSettings

_LEAST_FREE_BYTES: Final = 5 << 30
_SECONDS: Final = 30.0


def main() -> None:
    """Print the checks."""
    logging.disable(logging.CRITICAL)  # what they would say is in the checks
    json.dump(list(examine()), sys.stdout)


def examine() -> Iterator[Check]:
    """Yield what is found; what depends on something that is missing is left out."""
    try:
        settings = WorkerSettings()
    except ValidationError as error:
        text = "; ".join(str(each["msg"]) for each in error.errors(include_url=False))
        yield Check("worker settings", "problem", text, "correct the environment variable")
        return
    yield _disk(settings)
    try:
        runsc = check_machine(settings.runsc)
    except CannotStartError as error:
        found, _, fix = str(error).partition(". ")
        yield Check("machine", "problem", found, fix)
        return
    yield Check("machine", "ok", f"{platform.system()} on {platform.machine()}, as root")
    yield Check("runsc", "ok", f"{runsc.executable}, version {runsc.version}")
    limits = limits_in_force()
    found, _, fix = str(limits).partition(". ")
    yield Check("limits", "warning" if limits.problem else "ok", found, fix)
    yield from _sandboxes(settings, runsc)


def _disk(settings: WorkerSettings) -> Check:
    folder = settings.data
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    found = f"{free / 1e9:.1f} GB free for {settings.data}"
    if free >= _LEAST_FREE_BYTES:
        return Check("disk", "ok", found)
    fix = "make room (`readie generation prune` removes old generations), or set READIE_DATA to another disk"
    return Check("disk", "warning", found, fix)


def _sandboxes(settings: WorkerSettings, runsc: Runsc) -> Iterator[Check]:
    try:
        served = load(settings, runsc.version)
    except CannotStartError as error:
        found, _, fix = str(error).partition(". ")
        yield Check("flavor", "problem", found, fix)
        return
    filesystem = served.filesystem
    yield Check("flavor", "ok", f"{settings.flavor}, Python {filesystem.python_version}, {filesystem.digest[:12]}")
    yield _generation(settings, served)
    run_dir = settings.run / f"doctor-{os.getpid()}"
    try:
        with contextlib.ExitStack() as stack:
            gateway = None
            if settings.sandbox_network == "sandbox":
                gateway = stack.enter_context(Gateway(server_urls(settings.redis_url)))
            host = stack.enter_context(
                SandboxHost(run_dir, runsc.executable, filesystem, served.shape, gateway=gateway)
            )
            yield _start(host, served)
            if gateway is not None:
                check_network(host)
                versions = " and ".join(f"IPv{version}" for version in gateway.versions)
                yield Check("network", "ok", f"sandboxes reach the internet by {versions}")
            else:
                yield _without_gateway(settings)
    except NetworkUnavailableError as error:
        found, _, fix = str(error).partition(". ")
        yield Check("network", "problem", found, fix)
    except (RunscError, OSError, RuntimeError, ValueError) as error:
        yield Check("sandboxes", "problem", f"none can be made: {error}", "see the worker's log")


def _generation(settings: WorkerSettings, served: Served) -> Check:
    if served.generation_id is not None:
        return Check("generation", "ok", f"{served.generation_id}, {len(served.images)} checkpoints")
    if settings.sandbox_network == "host":
        return Check("generation", "warning", "none with SANDBOX_NETWORK=host", "use SANDBOX_NETWORK=sandbox")
    return Check(
        "generation",
        "warning",
        f"none of {settings.flavor} fits this machine and these settings: every call starts cold",
        "run `make generation`; a worker's log names each difference",
    )


def _start(host: SandboxHost, served: Served) -> Check:
    """Restore the smallest checkpoint, or start a sandbox cold where there is none."""
    image: Path | None = next(iter(served.images.values()), None)
    try:
        sandbox = host.take(to_restore=image is not None)
        if image is None:
            sandbox.start(timeout=_SECONDS)
        else:
            sandbox.restore(image, timeout=_SECONDS)
        sandbox.wait_ready(timeout=_SECONDS)
    except SandboxFailedError as error:
        fix = "run `scripts/get-runsc` for a runsc that works here, then `make generation`"
        return Check("sandboxes", "problem", error.reason, fix)
    done = "started cold" if image is None else f"{image.name} restored"
    seconds = sum(value for name, value in sandbox.phases.items() if name != "create_seconds")
    return Check("sandboxes", "ok", f"{done} in {1000 * seconds:.0f} ms")


def _without_gateway(settings: WorkerSettings) -> Check:
    if settings.sandbox_network == "none":
        return Check("network", "ok", "sandboxes have none (SANDBOX_NETWORK=none)")
    return Check(
        "network",
        "warning",
        "functions reach Redis and all that this machine reaches (SANDBOX_NETWORK=host)",
        "use SANDBOX_NETWORK=sandbox",
    )


if __name__ == "__main__":
    main()
