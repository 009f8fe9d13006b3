"""``readie dead-letters``."""

# ruff: noqa: PLC0415 - see the package's docstring

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from .cluster import cluster_redis
from .display import console, plain, print_json, say, when
from .options import AsJson

if TYPE_CHECKING:
    from readie.protocol.dead_letter import DeadLetter


def dead_letters(
    as_json: AsJson = False,
    clear: Annotated[bool, typer.Option("--clear", help="Remove them after they have been shown.")] = False,
) -> None:
    """Show the messages that a router or a worker could not read, newest first, each with the reason.

    The newest thousand are kept, the first 2,000 characters of each; --json prints all of these.

    Exit status: 0 they are shown, be it none.
    """
    with cluster_redis("dead-letters") as redis:
        from readie.ledger import Ledger

        letters = Ledger(redis).dead_letters(clear=clear)
    if as_json:
        print_json([letter.model_dump() for letter in letters])
    elif letters:
        _show(letters)
    else:
        say("No dead letters.")
    if clear and letters:
        say(f"Removed {len(letters)}.", stderr=True)


def _show(letters: "Sequence[DeadLetter]") -> None:
    from rich.padding import Padding
    from rich.text import Text

    out = console()
    for letter in letters:
        out.print(plain(f"{when(letter.at)}  {letter.queue}", "bold"))
        out.print(Padding(plain(letter.reason, "red"), (0, 0, 0, 2)))
        item = Text(letter.item.encode("unicode_escape").decode(), no_wrap=True, overflow="ellipsis")
        out.print(Padding(item, (0, 0, 0, 2)))
