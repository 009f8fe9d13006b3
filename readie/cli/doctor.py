"""``readie doctor``."""

# ruff: noqa: PLC0415 - see the package's docstring

from typing import Annotated

import typer

EXIT_STATUS = {"ok": 0, "warning": 1, "problem": 2}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look at all that client, Redis and a worker on this machine need, and say how to mend what is wrong.

    Exit status: 0 all is well; 1 it works, but not as well as it could; 2 something does not work.
    """
    import json

    from rich.console import Console
    from rich.markup import escape

    from readie.stack.doctor import examine
    from readie.stack.settings import load_settings

    checks = examine(load_settings().redis_url)
    worst = max((check.state for check in checks), key=lambda state: EXIT_STATUS[state])
    if as_json:
        typer.echo(json.dumps({"state": worst, "checks": [check._asdict() for check in checks]}, indent=2))
    else:
        console = Console(highlight=False)
        marks = {"ok": "[green]ok[/]", "warning": "[yellow]warning[/]", "problem": "[red]problem[/]"}
        for check in checks:
            console.print(f"{marks[check.state]:<20} [bold]{check.name}[/]: {escape(check.found)}", soft_wrap=True)
            if check.fix:
                console.print(f"        -> {escape(check.fix)}", soft_wrap=True)
    raise typer.Exit(EXIT_STATUS[worst])
