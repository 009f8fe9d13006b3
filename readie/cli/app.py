"""The command line: every subcommand, and what all of them do with an error."""

import typer

from readie.errors import ReadieError

from .calls import cancel, logs
from .dead_letters import dead_letters
from .down import down
from .explain import explain
from .generation import app as generation
from .run import run as run_function
from .sessions import app as sessions
from .status import status
from .up import up

app = typer.Typer(
    name="readie",
    help="Run Python functions remotely with no import cold start.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(up)
app.command()(down)
app.command()(status)
app.add_typer(generation)
app.command()(explain)
app.command(name="run")(run_function)
app.command()(logs)
app.command()(cancel)
app.command()(dead_letters)
app.add_typer(sessions)


def run() -> None:
    """Run a command; an error of ours becomes one message and exit status 1, never a traceback."""
    try:
        app()
    except ReadieError as error:
        typer.echo(f"readie: {error}", err=True)
        raise SystemExit(1) from None
