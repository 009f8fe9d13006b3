"""``readie status``."""

# ruff: noqa: PLC0415 - see the package's docstring

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from readie.stack.overview import Overview

EXIT_STATUS = {"running": 0, "starting": 1, "degraded": 1, "stopped": 3}


def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what runs: Redis, routers, workers, calls.

    Exit status: 0 all runs; 1 it is starting, or a part of it is missing; 3 nothing runs.
    """
    from readie.stack.overview import look
    from readie.stack.settings import load_settings

    settings = load_settings()
    configured = bool({"redis_url", "redis_url_file"} & settings.model_fields_set)
    overview = look(settings.home.absolute(), settings.redis_url, redis_configured=configured)
    if as_json:
        typer.echo(overview.model_dump_json(indent=2))
    else:
        _show(overview)
    raise typer.Exit(EXIT_STATUS[overview.state])


def _show(overview: "Overview") -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    if overview.state == "stopped" and overview.redis.error is not None:
        console.print(f"Nothing runs in {escape(str(overview.home))}; `readie up -d` starts a stack.", soft_wrap=True)
        return
    console.print(_facts(overview))
    if overview.workers:
        console.print(_workers(overview))


def _facts(overview: "Overview") -> "Table":
    from rich.table import Table
    from rich.text import Text

    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")

    def add(name: str, value: str, style: str = "") -> None:
        facts.add_row(name, Text(value, style=style))

    add("State", overview.state, "green" if overview.state == "running" else "yellow")
    if overview.stack is not None:
        add("Home", str(overview.home))
        if not overview.stack.supervisor_running:
            add("Supervisor", "gone; what ends is not started again. `readie up` puts that right", "yellow")
        for part in overview.stack.parts:
            if part.failure is not None:
                add(part.name, part.failure, "red")
            elif not part.running:
                add(part.name, "not running", "yellow")
            elif part.restarts:
                add(part.name, f"was started again {part.restarts} times")
    redis = overview.redis
    if redis.error is not None:
        add("Redis", f"{redis.url} does not answer: {redis.error}", "red")
    else:
        add("Redis", f"{redis.url}  {redis.version}  {(redis.used_memory_bytes or 0) / 1e6:.1f} MB")
        add("Routers", ", ".join(router.id for router in overview.routers) or "none", "" if overview.routers else "red")
    if overview.calls is not None:
        calls = overview.calls
        add("Calls", f"{calls.pending} pending, {calls.waiting} waiting for a worker, {calls.submitted} not yet routed")
        if calls.stale:
            add("", f"{calls.stale} late or doubled messages and ends were dropped")
    if overview.calls is not None and not overview.workers:
        add("Workers", "none", "yellow")
    return facts


def _workers(overview: "Overview") -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    table.add_column("Worker", overflow="fold")
    table.add_column("PID", justify="right", no_wrap=True)
    table.add_column("Busy", justify="right", no_wrap=True)
    table.add_column("Flavor", overflow="fold")
    table.add_column("Generation", overflow="fold")
    table.add_column("Checkpoints", justify="right")
    for worker in overview.workers:
        table.add_row(
            Text(worker.name),
            str(worker.pid),
            f"{worker.busy}/{worker.slots}",
            Text(worker.flavor),
            Text(worker.generation or "none: cold starts"),
            str(len(worker.checkpoints)),
        )
    return table
