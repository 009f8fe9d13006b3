"""Blocking forms refuse to stop a running event loop."""

import sys
from typing import Any

from .errors import RunningLoopError


def refuse_in_running_loop(blocking: str, instead: str) -> None:
    """Raise where blocking would stop everything else that an event loop does.

    A notebook's cells run inside the kernel's own loop, which waits for them in any case: there blocking is right.

    Args:
        blocking: what was called.
        instead: what to write in its place.

    Raises:
        RunningLoopError: this thread runs an event loop.
    """
    asyncio: Any = sys.modules.get("asyncio")  # not imported: no loop
    if asyncio is not None and asyncio._get_running_loop() is not None and not _in_notebook():  # noqa: SLF001
        raise RunningLoopError(f"{blocking} would block the running event loop; use `{instead}`")


def _in_notebook() -> bool:
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None
