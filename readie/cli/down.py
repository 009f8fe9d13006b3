"""``readie down``."""

# ruff: noqa: PLC0415 - see the package's docstring

import typer


def down() -> None:
    """Stop the stack of READIE_HOME, and all that is left of it.

    Workers have 30 seconds to finish their running calls. Where nothing runs, that is said, and it is no error.
    """
    from rich.console import Console

    from readie.stack.settings import load_settings
    from readie.stack.teardown import stop_stack

    home = load_settings().home.absolute()
    console = Console(stderr=True)
    with console.status("Stopping") as spinner:
        stopped = stop_stack(home, lambda names: spinner.update(f"Stopping {names}"))
    if stopped is None:
        typer.echo(f"Nothing runs in {home}.")
        return
    if stopped.without_supervisor:
        typer.echo("The supervisor had been killed; its parts were still there.")
    typer.echo(f"Stopped {', '.join(stopped.parts) or 'a stack that was just starting'}.")
