"""How commands show things: tables and lines that fit the terminal, JSON that programs read."""

# ruff: noqa: PLC0415 - see the package's docstring

import json
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

Fact = tuple[str, str] | tuple[str, str, str]
"""A name and its value, and perhaps the value's style."""

_USUAL_WIDTH: Final = 80
_WHOLE_CHARACTERS: Final = 40


def console(*, stderr: bool = False) -> "Console":
    """Return what prints on standard output or error."""
    from rich.console import Console

    return Console(highlight=False, stderr=stderr)


def say(text: str, style: str = "", *, stderr: bool = False) -> None:
    """Print a message. On a terminal its lines are broken between words; elsewhere they stay whole, to be searched."""
    to = console(stderr=stderr)
    to.print(plain(text, style), soft_wrap=not to.is_terminal)


def print_json(value: Any) -> None:
    """Print JSON on standard output, alone there."""
    typer.echo(json.dumps(value, indent=2))


def plain(text: str, style: str = "") -> "Text":
    """Return text of anybody's as it may be shown: what would act on the terminal is written out."""
    from rich.text import Text

    shown = "".join(each if each.isprintable() or each == "\n" else ascii(each)[1:-1] for each in text)
    return Text(shown, style=style, overflow="fold")


def table(*titles: str, whole: Iterable[str] = ()) -> "Table":
    """Return a table of these columns.

    Args:
        *titles: one that begins with ``>`` is of numbers.
        whole: what the first column holds, when these are ids that the next command needs: where there are 80 columns,
            ids of up to 40 characters are not broken.
    """
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE, padding=(0, 2, 0, 0), pad_edge=False)
    for title in titles:
        made.add_column(title.removeprefix(">"), justify="right" if title.startswith(">") else "left", overflow="fold")
    if console().width >= _USUAL_WIDTH:
        made.columns[0].min_width = max((len(each) for each in whole if len(each) <= _WHOLE_CHARACTERS), default=0)
    return made


def facts(rows: Iterable[Fact]) -> "Table":
    """Return names with their values, one a line."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value, *style in rows:
        grid.add_row(name, plain(value, *style))
    return grid


def seconds(duration: float | None) -> str:
    """Return a duration for people: ``3 ms``, ``1.5 s``, ``4m 3s``, ``2h 5m``, ``3d 1h``."""
    if duration is None:
        return ""
    if duration < 1:
        return f"{1000 * duration:.0f} ms"
    if duration < 60:
        return f"{duration:.1f} s"
    whole = int(duration)
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size}{unit} {whole % size // part}{smaller}"
    raise AssertionError(duration)


def when(at: float) -> str:
    """Return a time (seconds since the epoch) as the clock on the wall has it here."""
    return f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M:%S}"
