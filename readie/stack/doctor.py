"""What ``readie doctor`` looks at: this Python, Redis, and what a worker needs where workers are installed."""

import importlib.util
import json
import os
import platform
import subprocess
import sys
from typing import Final

from .check import Check
from .redis_checks import check_redis

_WORKER_CHECKS: Final = "workers.doctor"
_SECONDS: Final = 180


def examine(redis_url: str) -> list[Check]:
    """Look at everything; a part that can't be looked at is a problem by itself."""
    client = Check("python", "ok", f"{platform.python_version()}: calls from here run on workers with the same minor")
    return [client, *check_redis(redis_url), *_worker_checks()]


def _worker_checks() -> list[Check]:
    if importlib.util.find_spec("workers") is None:
        return [Check("worker", "ok", "only the client is installed here: nothing of a worker was looked at")]
    # A process of its own: nothing here may need what workers do.
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", _WORKER_CHECKS],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            env=os.environ,
        )
        return [Check(*check) for check in json.loads(done.stdout)]
    except subprocess.TimeoutExpired:
        return [
            Check("worker", "problem", f"it was not looked at within {_SECONDS} s", "see what hangs on this machine")
        ]
    except (ValueError, TypeError):
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return [
            Check("worker", "problem", f"it can't be looked at: {last}", "install the package with its extra `server`")
        ]
