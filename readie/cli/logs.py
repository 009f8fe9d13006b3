"""``readie logs``."""

# ruff: noqa: PLC0415 - see the package's docstring

import json
import sys
from typing import Annotated

import typer

from .options import CallId


def logs(
    call_id: CallId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the call has ended.")] = False,
    offset: Annotated[int, typer.Option(min=0, help="Bytes of output to leave out.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a line for each line.")] = False,
) -> None:
    """Print what a call has printed, as it was printed.

    Exit status: 0 it was printed, be it nothing; 1 there is no such call, or its output is no longer kept.
    """
    from readie.client import get_call

    lines = get_call(call_id).logs(follow=follow, offset=offset)
    if as_json:
        for line in lines:
            typer.echo(json.dumps({"line": line, "offset": lines.offset}))
        return
    for part in lines.raw():
        sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()
