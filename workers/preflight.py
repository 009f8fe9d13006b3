"""Whether this machine can run a worker. Asked before anything is started, so that nothing starts half."""

import os
import platform
import re
from pathlib import Path

from .sandbox.runsc import Runsc, RunscError, find_runsc

OLDEST_RUNSC = 20240729
"""Release date of the oldest runsc that is known to checkpoint and restore a Python process."""


EXIT_CANNOT_START = 78
"""Exit status of a worker that can't run on this machine as it is: restarting it does not help."""


class CannotStartError(Exception):
    """This machine can't run a worker; the text says why and what to do."""


def check_machine(runsc_path: Path | None) -> Runsc:
    """Return the runsc to use.

    Args:
        runsc_path: the configured one, ``None`` to look for it.

    Raises:
        CannotStartError: not Linux on amd64, not root, or no runsc that works.
    """
    system, machine = platform.system(), platform.machine()
    if system != "Linux" or machine not in {"x86_64", "amd64"}:
        raise CannotStartError(
            f"a worker needs Linux on amd64, because restoring checkpoints does; this is {system} on {machine}. "
            "Clients and routers run here; start the worker on an amd64 Linux machine"
        )
    if os.geteuid() != 0:
        raise CannotStartError(
            f"a worker must run as root to make sandboxes; this is user {os.geteuid()}. "
            "Start it with sudo, or in the container that compose.yaml describes"
        )
    try:
        runsc = Runsc(find_runsc(runsc_path))
        version = runsc.version
    except (FileNotFoundError, RunscError, OSError) as error:
        raise CannotStartError(
            f"no usable runsc: {error}. `scripts/get-runsc` gets one, READIE_RUNSC names another"
        ) from None
    released = re.search(r"(20\d{6})", version)
    if released is None or int(released[1]) < OLDEST_RUNSC:
        raise CannotStartError(
            f"{runsc.executable} is version {version}; checkpoints need {OLDEST_RUNSC} or later. "
            "`scripts/get-runsc` gets one, READIE_RUNSC names another"
        )
    return runsc
