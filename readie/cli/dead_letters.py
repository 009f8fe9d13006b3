"""``readie dead-letters``."""

# ruff: noqa: PLC0415 - see the package's docstring

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from readie.protocol.dead_letter import DeadLetter


def dead_letters(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    clear: Annotated[bool, typer.Option("--clear", help="Remove them after they have been shown.")] = False,
) -> None:
    """Show the messages that a router or a worker could not read, newest first, each with the reason.

    The newest thousand are kept, the first 2,000 characters of each; --json prints all of these.
    """
    import json

    from readie.connection import connect, reaching_redis
    from readie.ledger import Ledger
    from readie.stack.settings import load_settings

    url = load_settings().redis_url
    with connect(url, name="readie-dead-letters") as redis, reaching_redis(url):
        letters = Ledger(redis).dead_letters(clear=clear)
    if as_json:
        typer.echo(json.dumps([letter.model_dump() for letter in letters], indent=2))
    elif letters:
        _show(letters)
    else:
        typer.echo("No dead letters.")
    if clear and letters:
        typer.echo(f"Removed {len(letters)}.", err=True)


def _show(letters: "Sequence[DeadLetter]") -> None:
    from datetime import datetime

    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False)
    for letter in letters:
        when = datetime.fromtimestamp(letter.at).astimezone()
        console.print(Text(f"{when:%Y-%m-%d %H:%M:%S}  {letter.queue}", style="bold"))
        console.print(Padding(Text(letter.reason, style="red"), (0, 0, 0, 2)))
        item = Text(letter.item.encode("unicode_escape").decode(), no_wrap=True, overflow="ellipsis")
        console.print(Padding(item, (0, 0, 0, 2)))
