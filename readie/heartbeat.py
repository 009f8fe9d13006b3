"""A file whose age tells whether a process does its work: health checks of containers need no other process for it."""

import logging
from pathlib import Path

_log = logging.getLogger(__name__)


def beat(file: Path | None) -> None:
    """Make ``file`` as young as it can be; one that can't be written is no reason to stop working."""
    if file is not None:
        try:
            file.touch()
        except OSError as error:
            _log.warning("health checks will fail: READIE_HEARTBEAT_FILE can't be written: %s", error)
