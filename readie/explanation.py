"""What ``f.explain()`` returns: a router's answer that shows itself as a table."""

import io
import shutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .protocol.explain import ExplainAnswer, StartCost

if TYPE_CHECKING:
    from rich.table import Table

_LEAST_WIDTH = 80


class Explanation(ExplainAnswer):
    """Where a call would go and why. ``str()`` of it is for people, ``model_dump_json()`` for programs."""

    travels: tuple[str, ...] = ()
    """Modules of the user's own project that go with the function."""

    def __str__(self) -> str:
        # Here, because rich takes longer to import than most programs have patience.
        from rich.console import Console  # noqa: PLC0415

        text = io.StringIO()
        console = Console(
            file=text, highlight=False, width=max(_LEAST_WIDTH, shutil.get_terminal_size((_LEAST_WIDTH, 24)).columns)
        )
        console.print(_facts(self._found()))
        if self.starts:
            console.print(_starts(self.starts, console.width))
        console.print(_facts(self._decided()))
        return "\n".join(line.rstrip() for line in text.getvalue().rstrip().splitlines())

    def _found(self) -> Iterator[tuple[str, str]]:
        yield "Hints", ", ".join(self.hints.imports) or "none"
        for title, names in (
            ("Models", self.hints.models),
            ("Tokenizers", self.hints.tokenizers),
            ("Datasets", self.hints.datasets),
            ("Resolved", self.resolved),
            ("Unknown", self.unknown),
        ):
            if names:
                yield title, ", ".join(names)
        if self.travels:
            yield "Travels", ", ".join(self.travels)
        if self.worker is not None:
            yield "Worker", f"{self.worker}, generation {self.generation or 'none'}"

    def _decided(self) -> Iterator[tuple[str, str]]:
        if self.failure is not None:
            yield "Refused", self.failure.message
        elif self.waits_for:
            yield "Waits", self.waits_for
        else:
            yield "Choice", f"{self.checkpoint_id or 'cold start'} ({self.reason})"


def _facts(facts: Iterator[tuple[str, str]]) -> "Table":
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, min_width=10)
    table.add_column(overflow="fold")
    for title, value in facts:
        table.add_row(title, Text(value))
    return table


def _starts(starts: Sequence[StartCost], width: int) -> "Table":
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    titles = ("Start", "Base", "Size", "Imports", "Total ms")
    rows = [
        (
            f"{start.checkpoint_id or 'cold'}{' (ready)' if start.ready else ''}",
            *(
                f"{1000 * seconds:,.0f}"
                for seconds in (start.base_seconds, start.size_seconds, start.import_seconds, start.seconds)
            ),
        )
        for start in starts
    ]
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for title, column_width in zip(titles, widths, strict=True):
        table.add_column(title, justify="left" if title == "Start" else "right", no_wrap=True, min_width=column_width)
    table.add_column("Imported at call time", no_wrap=True)
    left = width - sum(widths) - 2 * len(widths) - 2
    for row, start in zip(rows, starts, strict=True):
        table.add_row(*(Text(cell) for cell in row), Text(_as_fits(start.missing, left)))
    return table


def _as_fits(names: Sequence[str], width: int) -> str:
    """Return as many names as fit, and how many are left out."""
    shown = len(names)
    text = ", ".join(names)
    while len(text) > width and shown:
        shown -= 1
        text = ", ".join([*names[:shown], f"+{len(names) - shown}"])
    return text
