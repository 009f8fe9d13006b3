"""The command line: every subcommand, and what all of them do with an error."""

import sys

import typer

from readie.errors import ClusterUnavailableError, ConfigurationError, ReadieError

from .acl import acl
from .calls import calls
from .cancel import cancel
from .checkpoints import checkpoints
from .dead_letters import dead_letters
from .display import say
from .doctor import doctor
from .down import down
from .explain import explain
from .generation import app as generation
from .logs import logs
from .run import run as run_function
from .sessions import app as sessions
from .status import status
from .top import top
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
app.command()(top)
app.command()(doctor)
app.command()(calls)
app.command()(logs)
app.command()(cancel)
app.add_typer(sessions)
app.command()(checkpoints)
app.add_typer(generation)
app.command()(explain)
app.command()(acl)
app.command(name="run")(run_function)
app.command()(dead_letters)


def run() -> None:
    """Run a command; an error of ours becomes one message and an exit status, never a traceback."""
    try:
        app()
    except ReadieError as error:
        say(f"readie: {error}", stderr=True)
        raise SystemExit(_status_of(error)) from None
    except BrokenPipeError:
        # Whoever read the output has had enough. Python would say so once more when it closes it.
        sys.stdout = None
        raise SystemExit(1) from None


def _status_of(error: ReadieError) -> int:
    if isinstance(error, ConfigurationError):
        return 2
    return 4 if isinstance(error, ClusterUnavailableError) else 1
