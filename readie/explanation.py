"""What ``f.explain()`` returns: a router's answer that shows itself as a table."""

import io
import shutil

from .protocol.explain import ExplainAnswer


class Explanation(ExplainAnswer):
    """Where a call would go and why. ``str()`` of it is for people, ``model_dump_json()`` for programs."""

    def __str__(self) -> str:
        # Here, because rich takes longer to import than most programs have patience.
        from rich.console import Console  # noqa: PLC0415
        from rich.markup import escape  # noqa: PLC0415

        text = io.StringIO()
        console = Console(file=text, highlight=False, width=max(80, shutil.get_terminal_size().columns))

        def names(title: str, values: tuple[str, ...]) -> None:
            if values:
                console.print(f"{title:9} {escape(', '.join(values))}")

        names("Hints", self.hints.imports)
        names("Models", self.hints.models)
        names("Resolved", self.resolved)
        names("Unknown", self.unknown)
        if self.worker is not None:
            names("Worker", (self.worker, f"generation {self.generation or 'none'}"))
        if self.starts:
            console.print(self._table())
        if self.failure is not None:
            names("Refused", (self.failure.message,))
        elif self.waits_for:
            names("Waits", (self.waits_for,))
        else:
            names("Choice", (f"{self.checkpoint_id or 'cold start'} ({self.reason})",))
        return text.getvalue().rstrip()

    def _table(self) -> object:
        from rich import box  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415

        table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
        table.add_column("Start", no_wrap=True)
        for title in ("Base ms", "Size ms", "Imports ms", "Total ms"):
            table.add_column(title, justify="right", no_wrap=True)
        table.add_column("Imports at call time", overflow="ellipsis", no_wrap=True)
        for start in self.starts:
            seconds = (start.base_seconds, start.size_seconds, start.import_seconds, start.seconds)
            table.add_row(
                start.checkpoint_id or "cold",
                *(f"{1000 * value:,.0f}" for value in seconds),
                ", ".join(start.missing),
            )
        return table
