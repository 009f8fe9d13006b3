"""``readie status``."""

# ruff: noqa: PLC0415 - see the package's docstring

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from .display import Fact, console, facts, plain, print_json, say, table
from .options import AsJson

if TYPE_CHECKING:
    from rich.table import Table

    from readie.stack.overview import Overview

EXIT_STATUS = {"running": 0, "starting": 1, "degraded": 1, "stopped": 3}


def status(
    as_json: AsJson = False,
) -> None:
    """Show what runs: Redis, routers, workers, calls.

    Exit status: 0 all runs; 1 it is starting, or a part of it is missing; 3 nothing runs.
    """
    overview = look_at_home()
    if as_json:
        print_json(overview.model_dump(mode="json"))
    else:
        _show(overview)
    raise typer.Exit(EXIT_STATUS[overview.state])


def look_at_home() -> "Overview":
    """Return what runs, as the settings say where to look."""
    from readie.stack.overview import look
    from readie.stack.settings import load_settings

    settings = load_settings()
    configured = bool({"redis_url", "redis_url_file"} & settings.model_fields_set)
    return look(settings.home.absolute(), settings.redis_url, redis_configured=configured)


def _show(overview: "Overview") -> None:
    if overview.state == "stopped" and overview.redis.error is not None:
        say(f"Nothing runs in {overview.home}; `readie up -d` starts a stack.")
        return
    out = console()
    out.print(facts(_facts(overview)))
    if overview.workers:
        out.print(_workers(overview))


def _facts(overview: "Overview") -> "Iterator[Fact]":
    yield "State", overview.state, "green" if overview.state == "running" else "yellow"
    if overview.stack is not None:
        yield "Home", str(overview.home)
        if not overview.stack.supervisor_running:
            yield "Supervisor", "gone; what ends is not started again. `readie up` puts that right", "yellow"
        for part in overview.stack.parts:
            if part.failure is not None:
                yield part.name, part.failure, "red"
            elif not part.running:
                yield part.name, "not running", "yellow"
            elif part.restarts:
                yield part.name, f"was started again {part.restarts} times"
    redis = overview.redis
    if redis.error is not None:
        yield "Redis", f"{redis.url} does not answer: {redis.error}", "red"
    else:
        yield "Redis", f"{redis.url}  {redis.version}  {(redis.used_memory_bytes or 0) / 1e6:.1f} MB"
        routers = ", ".join(router.id for router in overview.routers)
        yield "Routers", routers or "none", "" if routers else "red"
    if overview.calls is not None:
        calls = overview.calls
        yield (
            "Calls",
            f"{calls.pending} pending, {calls.waiting} waiting for a worker, {calls.submitted} not yet routed",
        )
        if calls.stale:
            yield "", f"{calls.stale} late or doubled messages and ends were dropped"
        if calls.forged:
            yield "", f"{calls.forged} refused: not signed as they must be; `readie dead-letters` shows them", "red"
    if overview.calls is not None and not overview.workers:
        yield "Workers", "none", "yellow"


def _workers(overview: "Overview") -> "Table":
    made = table("Worker", ">PID", ">Busy", "Flavor", "Generation", ">Checkpoints")
    for worker in overview.workers:
        made.add_row(
            plain(worker.name),
            str(worker.pid),
            f"{worker.busy}/{worker.slots}",
            plain(worker.flavor),
            plain(worker.generation or "none: cold starts"),
            str(len(worker.checkpoints)),
        )
    return made
