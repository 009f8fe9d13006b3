"""The runsc executables of this machine."""

import os
from pathlib import Path

from workers.sandbox.runsc import Runsc, find_runsc


def other_versions() -> list[Path]:
    """Return those that the set-up script keeps besides the one in use."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "readie" / "runsc"
    used = Runsc(find_runsc()).version
    return [path for path in sorted(cache.glob("*/runsc")) if Runsc(path).version != used]
