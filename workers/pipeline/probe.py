"""What the pipeline runs inside sandboxes. Sent by value, so it may use the standard library and the executor alone."""

import importlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


def measure_import(name: str) -> dict[str, Any]:
    """Import ``name`` and return what that took, module by module.

    ``seconds`` {module: its own, without the imports inside it}; ``megabytes`` of anonymous memory in all; ``loaded``:
    what ``sys.modules`` gained; ``error`` or ``None``.
    """
    from workers.executor.imports import anonymous_mb  # noqa: PLC0415 - only a sandbox has it on its path

    # Every import that sys.modules can't answer passes here, nested ones too: what `python -X importtime` times.
    bootstrap: Any = sys.modules["_frozen_importlib"]
    find_and_load: Callable[[str, Any], ModuleType] = bootstrap._find_and_load  # noqa: SLF001
    before = frozenset(sys.modules)
    megabytes = anonymous_mb()
    seconds: dict[str, float] = {}
    importing = [name]
    error = None
    clock = time.perf_counter()

    def charge() -> None:
        nonlocal clock
        now = time.perf_counter()
        seconds[importing[-1]] = seconds.get(importing[-1], 0.0) + now - clock
        clock = now

    def timed(module: str, import_: Any) -> ModuleType:
        charge()
        importing.append(module)
        try:
            return find_and_load(module, import_)
        finally:
            charge()
            importing.pop()

    bootstrap._find_and_load = timed  # noqa: SLF001
    try:
        importlib.import_module(name)
    except BaseException as raised:
        error = f"{type(raised).__name__}: {raised}"
    finally:
        bootstrap._find_and_load = find_and_load  # noqa: SLF001
    charge()
    return {
        "seconds": {module: round(own, 6) for module, own in seconds.items()},
        "megabytes": max(0.0, anonymous_mb() - megabytes),
        "loaded": sorted(set(sys.modules) - before),
        "error": error,
    }


def measure_package(top: str, submodules: list[str], limit_seconds: float) -> dict[str, dict[str, Any]]:
    """Import ``top`` here and each of its ``submodules`` in a child of this process; return ``measure_import`` of each.

    Importing ``a.b`` begins with importing ``a``, so a child that has ``a`` measures what ``a.b`` adds, and ``a`` is
    paid for once. Submodules that came with ``top`` are left out.
    """
    results = {top: measure_import(top)}
    if results[top]["error"] is None:
        for name in submodules:
            if name not in sys.modules:
                results[name] = _measure_in_child(name, limit_seconds)
    return results


def _measure_in_child(name: str, limit_seconds: float) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with os.fdopen(writing, "w") as answers:
                json.dump(measure_import(name), answers)
        finally:
            os._exit(0)
    os.close(writing)
    killer = threading.Timer(limit_seconds, os.kill, (child, signal.SIGKILL))
    killer.start()
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    killer.cancel()
    try:
        return dict(json.loads(answer))
    except ValueError:
        return {"error": f"its process ended with {os.waitstatus_to_exitcode(status)} (limit {limit_seconds:g} s)"}


def draw() -> dict[str, str]:
    """Return what two clones of one image must not have in common, from each generator that is loaded here."""
    import random  # noqa: PLC0415 - a clone's own state, not this module's
    import ssl  # noqa: PLC0415
    import tempfile  # noqa: PLC0415
    import uuid  # noqa: PLC0415

    drawn = {
        "random": random.random(),  # noqa: S311 - this is what is tested
        "ssl": ssl.RAND_bytes(8).hex(),
        "tempfile": next(tempfile._get_candidate_names()),  # type: ignore[attr-defined]  # noqa: SLF001
        "uuid1": uuid.uuid1().hex,
    }
    if numpy := sys.modules.get("numpy"):
        drawn["numpy"] = numpy.random.rand()
    if torch := sys.modules.get("torch"):
        drawn["torch"] = torch.rand(1).item()
    return {name: str(value) for name, value in drawn.items()}


def cpu_features() -> list[str]:
    """Return the features that gVisor shows to the processes in a sandbox."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return value.split()
    return []
