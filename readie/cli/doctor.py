"""``readie doctor``."""

# ruff: noqa: PLC0415 - see the package's docstring

import typer

from .display import console, plain, print_json
from .options import AsJson

EXIT_STATUS = {"ok": 0, "problem": 1, "warning": 3}
_STYLES = {"ok": "green", "warning": "yellow", "problem": "red"}


def doctor(
    as_json: AsJson = False,
) -> None:
    """Look at all that client, Redis and a worker on this machine need, and say how to mend what is wrong.

    Exit status: 0 all is well; 1 something does not work; 3 it works, but not as well as it could.
    """
    from readie.stack.doctor import examine
    from readie.stack.settings import load_settings

    checks = examine(load_settings().redis_url)
    worst = max((check.state for check in checks), key=["ok", "warning", "problem"].index)
    if as_json:
        print_json({"state": worst, "checks": [check._asdict() for check in checks]})
    else:
        from rich.table import Table

        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for check in checks:
            found = plain(f"{check.name}: {check.found}")
            found.stylize("bold", 0, len(check.name))
            grid.add_row(plain(check.state, _STYLES[check.state]), found)
            if check.fix:
                grid.add_row("", plain(f"-> {check.fix}"))
        console().print(grid)
    raise typer.Exit(EXIT_STATUS[worst])
