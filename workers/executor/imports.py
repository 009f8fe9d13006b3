"""Importing the modules of a checkpoint, and saying what that took."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path


def import_modules(names: Sequence[str]) -> dict[str, object]:
    """Import ``names`` in order and return a report; a module that fails is recorded and left out.

    ``imported`` names that worked; ``failed`` {name: error}; ``modules`` [{name, seconds, anonymous_mb}] what each
    added when it was imported after those before it; ``loaded`` all names in ``sys.modules`` afterwards;
    ``anonymous_mb`` of the whole process; ``threads`` and ``sockets`` that are open, which no snapshot should have.
    """
    imported: list[str] = []
    failed: dict[str, str] = {}
    modules: list[dict[str, object]] = []
    memory_before = anonymous_mb()
    for name in names:
        began = time.perf_counter()
        try:
            importlib.import_module(name)
        except BaseException as error:  # a module may raise anything, SystemExit included
            failed[name] = f"{type(error).__name__}: {error}"
            continue
        seconds = time.perf_counter() - began
        memory = anonymous_mb()
        imported.append(name)
        modules.append({"name": name, "seconds": seconds, "anonymous_mb": max(0.0, memory - memory_before)})
        memory_before = memory
    return {
        "imported": imported,
        "failed": failed,
        "modules": modules,
        "loaded": sorted(sys.modules),
        "anonymous_mb": anonymous_mb(),
        "threads": _thread_count(),
        "sockets": _socket_count(),
    }


def anonymous_mb() -> float:
    """Return this process's anonymous memory in MB (10**6 bytes).

    gVisor's ``/proc/self/status`` has no RssAnon, its ``smaps`` has the parts of it.
    """
    kib = 0
    with Path("/proc/self/smaps").open(encoding="utf-8", errors="replace") as smaps:
        for line in smaps:
            if line.startswith("Anonymous:"):
                kib += int(line.split()[1])
    return kib * 1024 / 1e6


def _thread_count() -> int:
    try:
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - names are enough
    except OSError:
        return threading.active_count()


def _socket_count() -> int:
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = str(link.readlink())
        except OSError:  # the descriptor of this very listing
            continue
        count += target.startswith("socket:")
    return count
