"""Where things lie on disk: the state of a local stack, and the data (flavors, generations) that stacks share."""

import json
import os
from pathlib import Path
from typing import Final

STACK_FILE: Final = "stack.json"
"""Written into the home by ``readie up``: its ``redis_url`` is what a client with no configuration uses."""


def _xdg(variable: str, fallback: str) -> Path:
    configured = os.environ.get(variable, "")
    return Path(configured) if configured.startswith("/") else Path.home() / fallback


def default_home() -> Path:
    """Return the folder of a local stack's state: ``$XDG_STATE_HOME/readie``."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "readie"


def default_data() -> Path:
    """Return the folder of flavors and generations: ``$XDG_DATA_HOME/readie``."""
    return _xdg("XDG_DATA_HOME", ".local/share") / "readie"


def stack_redis_url(home: Path) -> str | None:
    """Return the Redis URL of the stack that runs with this home, or ``None`` when none does."""
    try:
        url = json.loads((home / STACK_FILE).read_text())["redis_url"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return url if isinstance(url, str) else None
