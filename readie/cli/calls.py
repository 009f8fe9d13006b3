"""``readie logs`` and ``readie cancel``."""

# ruff: noqa: PLC0415 - see the package's docstring

import json
import sys
from typing import Annotated

import typer

_CallId = Annotated[str, typer.Argument(metavar="CALL", help="A call's id, as Call.id, Flower and the logs show it.")]


def logs(
    call_id: _CallId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the call has ended.")] = False,
    offset: Annotated[int, typer.Option(min=0, help="Bytes of output to leave out.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a line for each line.")] = False,
) -> None:
    """Print what a call has printed, as it was printed."""
    from readie.client import get_call

    lines = get_call(call_id).logs(follow=follow, offset=offset)
    if as_json:
        for line in lines:
            typer.echo(json.dumps({"line": line, "offset": lines.offset}))
        return
    for part in lines.raw():
        sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()


def cancel(
    call_ids: Annotated[list[str], typer.Argument(metavar="CALL...", help="Ids of calls.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Cancel calls: take back those that wait, stop those that run.

    Exit status: 0 each is cancelled; 1 one of them had ended before, or there is no such call.
    """
    from readie.client import default_client

    client = default_client()
    cancelled = {call_id: client.cancel(call_id) for call_id in call_ids}
    if as_json:
        typer.echo(json.dumps(cancelled))
    else:
        for call_id, done in cancelled.items():
            typer.echo(f"{call_id}: {'cancelled' if done else 'had ended, or there is no such call'}")
    raise typer.Exit(0 if all(cancelled.values()) else 1)
