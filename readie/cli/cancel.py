"""``readie cancel``."""

# ruff: noqa: PLC0415 - see the package's docstring

from typing import Annotated

import typer

from . import completion
from .display import print_json, say
from .options import AsJson


def cancel(
    call_ids: Annotated[
        list[str],
        typer.Argument(metavar="CALL...", help="Ids of calls.", autocompletion=completion.pending_calls),
    ],
    as_json: AsJson = False,
) -> None:
    """Cancel calls: take back those that wait, stop those that run.

    Exit status: 0 each is cancelled; 1 one of them had ended before, or there is no such call.
    """
    from readie.client import default_client

    client = default_client()
    cancelled = {call_id: client.cancel(call_id) for call_id in call_ids}
    if as_json:
        print_json(cancelled)
    else:
        for call_id, done in cancelled.items():
            say(f"{call_id}: {'cancelled' if done else 'had ended, or there is no such call'}")
    raise typer.Exit(0 if all(cancelled.values()) else 1)
