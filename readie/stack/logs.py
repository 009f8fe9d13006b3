"""The files that the parts of a stack write their output to."""

import os
import shutil
from pathlib import Path
from typing import Final

LOG_LIMIT_BYTES: Final = 16 * 1024 * 1024
_TAIL_LINES: Final = 12
_TAIL_BYTES: Final = 16 * 1024


def bound(log: Path, limit_bytes: int = LOG_LIMIT_BYTES) -> None:
    """Empty a log that has grown past its limit, keeping one older copy. Its writer must append."""
    try:
        if log.stat().st_size > limit_bytes:
            shutil.copyfile(log, log.with_suffix(".log.1"))
            os.truncate(log, 0)
    except FileNotFoundError:
        return


def size(log: Path) -> int:
    """Return the length in bytes, 0 when there is no file."""
    try:
        return log.stat().st_size
    except FileNotFoundError:
        return 0


def tail(log: Path, since_bytes: int = 0) -> str:
    """Return the last lines written after an offset; an empty text when there are none."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(min(since_bytes, end), end - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-_TAIL_LINES:])
