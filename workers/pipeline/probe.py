"""What the pipeline runs inside sandboxes. Sent by value, so it may use the standard library and the executor alone."""

import gc
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


def measure_modules(names: list[str], limit_seconds: int) -> dict[str, dict[str, Any]]:
    """Import each of ``names`` in a process of its own and return what it took.

    Importing ``a.b`` begins with importing ``a``: where both are asked for, the process of ``a.b`` is a child of the
    one that has imported ``a``, and measures what ``a.b`` adds. A name that came with the one above it is left out.
    An answer is what ``measure_import`` returns, and ``after``: the name whose process this one came from, or
    ``None``; of an import that raised, hung for ``limit_seconds`` or ended its process there are ``error`` and
    ``after`` alone.
    """
    # A file, not a pipe: what an import leaves running would hold a pipe open.
    answers = Path("/tmp/measured.jsonl")  # noqa: S108 - the sandbox's own
    answers.write_text("")
    _measure_in_children(sorted(names), None, limit_seconds, answers)
    results: dict[str, dict[str, Any]] = {}
    for line in answers.read_text().splitlines():
        name, result = json.loads(line)
        # The first word on a module is its own process's, if that came to it; the other how that process ended.
        results.setdefault(name, result)
    return results


_NOTHING: dict[str, Any] = {"seconds": {}, "megabytes": 0.0, "loaded": [], "threads": [], "sockets": 0, "error": None}


def _measure_in_children(names: list[str], after: str | None, limit_seconds: int, answers: Path) -> None:
    while names:
        name, *rest = names
        below = [other for other in rest if other.startswith(f"{name}.")]
        names = [other for other in rest if not other.startswith(f"{name}.")]
        if name in sys.modules:
            if after is None:
                # Every executor has it from the start.
                _answer(answers, name, _NOTHING | {"loaded": [name]}, after)
            names = [*below, *names]
            continue
        child = os.fork()
        if child == 0:
            try:
                # Its default action ends the process, also where the import is deep in C code.
                signal.alarm(limit_seconds)
                result = measure_import(name)
                signal.alarm(0)
                _answer(answers, name, {"error": result["error"]} if result["error"] else result, after)
                if not result["error"]:
                    _measure_in_children(below, name, limit_seconds, answers)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        error = "its process ended without an answer" if code == 0 else f"its process ended with {code}"
        if code == -signal.SIGALRM:
            error = f"its import did not end within {limit_seconds} s"
        _answer(answers, name, {"error": error}, after)


def _answer(answers: Path, name: str, result: dict[str, Any], after: str | None) -> None:
    with answers.open("a") as file:
        file.write(json.dumps([name, {**result, "after": after}]) + "\n")


def measure_import(name: str) -> dict[str, Any]:
    """Import ``name`` and return what that took, module by module.

    ``seconds`` {module: its own, without the imports inside it}; ``megabytes`` of anonymous memory in all; ``loaded``:
    what ``sys.modules`` gained; ``threads``: names of the Python threads it left running; ``sockets``: how many it
    left open; ``error`` or ``None``.
    """
    from workers.executor.imports import anonymous_mb  # noqa: PLC0415 - only a sandbox has it

    # Every import that sys.modules can't answer passes here, nested ones too: what `python -X importtime` times.
    bootstrap: Any = sys.modules["_frozen_importlib"]
    find_and_load: Callable[[str, Any], ModuleType] = bootstrap._find_and_load  # noqa: SLF001
    before = frozenset(sys.modules)
    sockets = _count_sockets()
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
        "threads": running_threads(),
        "sockets": _count_sockets() - sockets,
        "error": error,
    }


def running_threads() -> list[str]:
    """Return the names of the Python threads besides the main one; what libraries run in C has no such name."""
    return sorted(thread.name for thread in threading.enumerate() if thread is not threading.main_thread())


def _count_sockets() -> int:
    links = (Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are enough
    # The descriptor of the listing itself is among them and gone by now.
    return sum(link.is_symlink() and str(link.readlink()).startswith("socket:") for link in links)


def try_imports(names: list[str]) -> dict[str, Any]:
    """Import ``names`` here, one after another; return ``failed`` {name: error}, ``threads`` and ``sockets``."""
    sockets = _count_sockets()
    failed: dict[str, str] = {}
    for name in names:
        try:
            importlib.import_module(name)
        except BaseException as raised:
            failed[name] = f"{type(raised).__name__}: {raised}"
    return {"failed": failed, "threads": running_threads(), "sockets": _count_sockets() - sockets}


def draw() -> dict[str, str]:
    """Return what two clones of one image must not have in common, from each generator that is loaded or lives here."""
    import random  # noqa: PLC0415 - a clone's own state, not this module's
    import ssl  # noqa: PLC0415
    import tempfile  # noqa: PLC0415
    import uuid  # noqa: PLC0415

    identity = uuid.uuid1()
    drawn: dict[str, object] = {
        "random": random.random(),  # noqa: S311 - this is what is tested
        "ssl": ssl.RAND_bytes(8),
        "tempfile": next(tempfile._get_candidate_names()),  # type: ignore[attr-defined]  # noqa: SLF001
        "uuid1": (identity.node, identity.clock_seq),
        "uuid4": uuid.uuid4(),
        "urandom": os.urandom(8),
    }
    # What was alive at the snapshot is kept where the collector does not look.
    gc.unfreeze()
    alive = gc.get_objects()
    drawn |= _draw_each("random.Random", alive, random.Random, random.Random.random)
    if numpy := sys.modules.get("numpy"):
        drawn["numpy"] = numpy.random.rand()
        drawn |= _draw_each("numpy.random.Generator", alive, numpy.random.Generator, lambda found: found.random())
        drawn |= _draw_each("numpy.random.RandomState", alive, numpy.random.RandomState, lambda found: found.rand())
    if torch := sys.modules.get("torch"):
        drawn["torch"] = torch.rand(1).item()
        drawn |= _draw_each("torch.Generator", alive, torch.Generator, lambda found: torch.rand(1, generator=found))
    return {name: str(value) for name, value in drawn.items()}


def _draw_each(
    title: str, alive: list[object], kind: type[Any], draw_from: Callable[[Any], object]
) -> dict[str, object]:
    # By type: isinstance() would wake lazy proxy objects through __class__.
    found = [item for item in alive if issubclass(type(item), kind)]
    return {f"{title} object {number}": draw_from(item) for number, item in enumerate(found, start=1)}


def cpu_features() -> list[str]:
    """Return the features that gVisor shows to the processes in a sandbox."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return value.split()
    return []
