"""Options and arguments that several commands have, alike everywhere."""

import re
from typing import Annotated, Final

import typer

from . import completion

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
CallId = Annotated[
    str,
    typer.Argument(
        metavar="CALL", help="A call's id, as Call.id, Flower and the logs show it.", autocompletion=completion.calls
    ),
]
Worker = Annotated[
    str, typer.Option(help="Only of this worker.", show_default=False, autocompletion=completion.workers)
]
Target = Annotated[str, typer.Argument(metavar="FILE:FUNCTION", help="A function in a Python file.")]

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def duration_seconds(text: str) -> float:
    """Return the seconds that ``90``, ``90s``, ``10m``, ``2h`` or ``1d`` means."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r}: give a number with s, m, h or d, such as 10m")
    return float(match[1]) * _UNITS[match[2] or "s"]
