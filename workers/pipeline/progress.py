"""Showing a long run to people: bars on a terminal, lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

Advance = Callable[[str], None]
"""Tells that one item of a stage is done, and its name."""


class Progress:
    """What a run reports to; writes to ``console``."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, text: str) -> None:
        """Show one line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Advance]:
        """Show a stage of ``total`` items from here to the end of the block."""
        began = time.monotonic()
        if self._console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            with Bars(*columns, console=self._console) as bars:
                task = bars.add_task(title, total=total)
                yield lambda item: bars.update(task, advance=1, description=f"{title} {item}".strip())
                bars.update(task, description=title)
        else:
            self.say(f"{title} ({total}) ...")
            yield lambda _: None
            self.say(f"{title}: {time.monotonic() - began:.1f} s")
