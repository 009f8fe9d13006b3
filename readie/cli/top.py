"""``readie top``."""

# ruff: noqa: PLC0415 - see the package's docstring

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from .display import Fact, console, facts, plain, print_json, table
from .status import EXIT_STATUS, look_at_home

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from readie.stack.activity import Activity
    from readie.stack.fleet import WorkerOverview

_END_KEYS: Final = b"qQ\x03\x04"


def top(
    interval: Annotated[float, typer.Option(min=0.2, max=60, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show it once, and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, once, and end.")] = False,
) -> None:
    """Show queues, workers, sandboxes, starts by kind and calls per second, again and again; q or Ctrl-C ends it.

    Where standard output is no terminal it is shown once.

    Exit status: 0 it was shown; of --once and --json: 1 the cluster is starting, or a part of it is missing; 3 nothing
    runs.
    """
    from readie.stack.activity import activity

    if as_json or once or not console().is_terminal:
        now = activity(look_at_home())
        if as_json:
            print_json(now.model_dump(mode="json"))
        else:
            console().print(_view(now))
        raise typer.Exit(EXIT_STATUS[now.state])
    _watch(interval)


def _watch(interval_seconds: float) -> None:
    from rich.live import Live

    from readie.stack.activity import activity

    with (
        contextlib.suppress(KeyboardInterrupt),
        _keys() as pressed,
        Live(console=console(), screen=True, auto_refresh=False) as live,
    ):
        while True:
            live.update(_view(activity(look_at_home())), refresh=True)
            if pressed(interval_seconds):
                return


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Give what waits for a key that ends it; nobody needs to press Enter."""
    import termios
    import tty

    if not sys.stdin.isatty():
        yield _wait
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield lambda seconds: _wait_for_key(descriptor, seconds)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _wait_for_key(descriptor: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([descriptor], [], [], left)[0]:
            keys = os.read(descriptor, 64)
            # Nothing to read: the terminal is gone.
            if not keys or any(key in _END_KEYS for key in keys):
                return True
    return False


def _view(now: "Activity") -> "RenderableType":
    from rich.console import Group

    parts: list[RenderableType] = [facts(_facts(now))]
    if now.workers:
        parts.append(_workers(now.workers))
    return Group(*parts)


def _facts(now: "Activity") -> Iterator[Fact]:
    clock = time.strftime("%H:%M:%S", time.localtime(now.at))
    yield "State", f"{now.state}, {clock}", "green" if now.state == "running" else "yellow"
    if now.redis.error is not None:
        yield "Redis", f"{now.redis.url} does not answer: {now.redis.error}", "red"
        return
    yield (
        "Redis",
        f"{(now.redis.used_memory_bytes or 0) / 1e6:.1f} MB; routers: {len(now.routers)}; workers: {len(now.workers)}",
    )
    if (calls := now.calls) is not None:
        parts = f"{calls.submitted} not yet routed, {calls.waiting} waiting for a worker, {calls.delayed} delayed"
        yield "Queues", f"{calls.pending} pending: {parts}"
        yield "Sessions", str(calls.sessions)
        if calls.dead_letters:
            yield "Dead", f"{calls.dead_letters} messages; `readie dead-letters` shows them", "yellow"
    yield "Slots", f"{now.busy} of {now.slots} busy"
    yield "Calls", f"{now.calls_per_second:.1f} a second; ended: {_counts(now.ended)}"
    yield "Starts", _counts(now.starts)
    yield "Sandboxes", _counts(now.sandboxes)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _workers(workers: "tuple[WorkerOverview, ...]") -> "Table":
    made = table("Worker", ">Busy", ">Sessions", ">Memory", ">Made", ">Calls/s", "Ready")
    for worker in workers:
        counts = worker.counts
        made.add_row(
            plain(f"{worker.name} (draining)" if worker.draining else worker.name),
            f"{worker.busy}/{worker.slots}",
            str(worker.sessions or ""),
            f"{100 * worker.reserved_bytes / worker.memory_bytes:.0f} %" if worker.memory_bytes else "",
            str(counts.sandboxes.get("created", 0)) if counts else "",
            f"{counts.calls_per_second:.1f}" if counts else "",
            plain(_ready(worker)),
        )
    return made


def _ready(worker: "WorkerOverview") -> str:
    names = sorted(worker.ready.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} x {name.removeprefix('checkpoint_')}" for name, count in names)
