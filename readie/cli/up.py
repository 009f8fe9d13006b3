"""``readie up``."""

# ruff: noqa: PLC0415 - see the package's docstring

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .display import console, facts, print_json, say
from .options import AsJson

if TYPE_CHECKING:
    from readie.stack.control import Event
    from readie.stack.launch import Launch
    from readie.stack.settings import StackOptions


def up(
    *,
    detach: Annotated[bool, typer.Option("-d", "--detach", help="Return as soon as everything runs.")] = False,
    workers: Annotated[int, typer.Option(min=0, max=1000, help="Number of workers.")] = 1,
    slots: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1000,
            help="Calls that each worker runs at once.",
            show_default="READIE_SLOTS, else two for each core",
        ),
    ] = None,
    redis_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of Redis, on loopback.", show_default="a free one")
    ] = None,
    flower: Annotated[bool, typer.Option("--flower", help="Run Flower too, behind a password.")] = False,
    flower_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of Flower, on loopback.")] = 5555,
    as_json: AsJson = False,
) -> None:
    """Run Redis, a router and workers on this machine.

    Without -d it stays until Ctrl-C, which stops all; a second Ctrl-C does not wait for running calls.

    State and logs lie in READIE_HOME; each home has a stack of its own.

    Where one runs already, "up -d" leaves it as it is and succeeds, "up" fails.

    Exit status: 0 it runs (-d), or ran until it was stopped; 1 it could not be started; 130 it was interrupted before
    everything ran.
    """
    from readie.stack.launch import Launch
    from readie.stack.settings import StackOptions, load_settings

    options = StackOptions.from_settings(
        load_settings(),
        workers=workers,
        slots=slots,
        redis_port=redis_port,
        flower_port=flower_port if flower else None,
    )
    launch = Launch(options)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: launch.stop())
    raise typer.Exit(_follow(launch, options, detach=detach, as_json=as_json))


def _follow(launch: "Launch", options: "StackOptions", *, detach: bool, as_json: bool) -> int:
    """Show what the supervisor reports; return the exit status."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    messages = console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    was_running = False
    # The bar is for people: a log of this command's output has the lines alone.
    with Progress(*columns, console=messages, transient=True, disable=not messages.is_terminal) as progress:
        parts = 2 + options.workers + (options.flower_port is not None)
        bar = progress.add_task("Starting redis, router, workers", total=parts)
        for event in launch.events():
            match event.kind:
                case "ready":
                    progress.advance(bar)
                    continue
                case "running":
                    was_running = True
                    progress.stop()
                    _tell_what_runs(options, detached=detach, as_json=as_json)
                    if detach:
                        launch.detach()
                        return 0
                case "stopping":
                    progress.stop()
                    say(f"Stopping {event.part}", stderr=True)
                case "stopped":
                    say("Stopped.", stderr=True)
                    return 0 if was_running else 130
                case "already_running":
                    progress.stop()
                    return _say_already_running(options.home, detached=detach, as_json=as_json)
                case "gave_up" if not was_running:
                    continue  # the failure that follows says it again
                case _:
                    progress.stop()
                    say(_line(event), stderr=True)
                    if event.kind == "failed":
                        return 1
    return 1


def _line(event: "Event") -> str:
    if event.kind == "cleaned":
        return f"Stopped first what a killed supervisor had left: {event.text}"
    return f"readie: {event.text}"


def _tell_what_runs(options: "StackOptions", *, detached: bool, as_json: bool) -> None:
    if as_json:
        _print_what_runs(options.home, already=False)
        return
    from readie.home import default_home
    from readie.stack.programs import flower_password_file
    from readie.stack.state import read_state

    state = read_state(options.home)
    url = state.redis_url if state else ""
    workers = "1 worker" if options.workers == 1 else f"{options.workers} workers"
    by_itself = options.home == default_home()
    rows = [
        ("  Redis", url),
        ("  Logs", str(options.home / "logs")),
        (
            "  Use it",
            "import readie  (it finds this stack by itself)"
            if by_itself
            else f"with READIE_HOME={options.home} in the client's environment",
        ),
        ("  Stop it", "readie down" if detached else "Ctrl-C, or readie down from elsewhere"),
    ]
    if state is not None and state.flower_url is not None:
        password = flower_password_file(options.home)
        rows.insert(1, ("  Flower", f"{state.flower_url}  user readie, password in {password}"))
    configured = os.environ.get("READIE_REDIS_URL", "")
    if configured not in {"", url}:
        rows.append(("  Note", "READIE_REDIS_URL is set here: clients in this shell use that Redis, not this stack"))
    say(f"Readie runs: Redis, a router and {workers}.")
    console().print(facts(rows))


def _print_what_runs(home: Path, *, already: bool) -> None:
    from readie.stack.state import read_state

    state = read_state(home)
    print_json(
        {
            "home": str(home),
            "logs": str(home / "logs"),
            "redis_url": state.redis_url if state else None,
            "flower_url": state.flower_url if state else None,
            "parts": list(state.parts) if state else [],
            "ran_already": already,
        }
    )


def _say_already_running(home: Path, *, detached: bool, as_json: bool) -> int:
    from readie.stack.state import read_state

    state = read_state(home)
    if state is None or state.phase != "running":
        phase = state.phase if state else "starting or stopping"
        say(f"readie: a stack is {phase} in {home} at this moment; see `readie status`", stderr=True)
        return 1
    say(
        f"readie: a stack runs in {home} already, with {', '.join(state.parts)}; nothing was changed. "
        "`readie status` shows it, `readie down` stops it, another READIE_HOME makes a second one",
        stderr=True,
    )
    if as_json and detached:
        _print_what_runs(home, already=True)
    return 0 if detached else 1
