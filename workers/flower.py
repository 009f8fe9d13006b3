"""``python -m workers.flower``: Flower for the calls of a cluster, behind a password.

What follows on the command line are Flower's own options. It listens on loopback unless told otherwise, keeps what it
has seen over a restart, and shows calls without their arguments, which its events do not hold.
"""

import os
import sys
from pathlib import Path

from pydantic import ValidationError

from readie.settings import Settings

USER = "readie"
_CANNOT_START = 78
"""Exit status: another try changes nothing."""
_OPTIONS = (
    "--address=127.0.0.1",
    "--persistent=True",
    "--state_save_interval=60000",
    # A worker that has been gone for so long will not come back under its name.
    "--purge_offline_workers=3600",
    # The result is how the call started: workers.task says why.
    "--tasks_columns=name,uuid,state,result,received,runtime,worker",
)


class FlowerSettings(Settings):
    """Read from ``READIE_*``."""

    flower_password_file: Path
    """A file with the password of the user ``readie``; Flower does not start without one."""


def main() -> int:
    """Run Flower until it is told to stop; returns the exit status."""
    try:
        settings = FlowerSettings()
        password = settings.flower_password_file.read_text().strip()
    except (ValidationError, OSError) as error:
        return _fail(f"{error}\nREADIE_FLOWER_PASSWORD_FILE must name a file with the password of the user {USER}")
    # Flower takes a list of users, separated by commas.
    if not password or "," in password:
        return _fail(f"the password in {settings.flower_password_file} is empty or has a comma in it")
    # Not on the command line, which every user of the machine can read.
    os.environ["FLOWER_BASIC_AUTH"] = f"{USER}:{password}"
    from workers.app import app  # noqa: PLC0415 - it reads the settings, which had to be checked before

    # Private: it holds function names and tracebacks.
    app.start(["flower", *_OPTIONS, f"--db={settings.home / 'flower'}", *sys.argv[1:]])
    return 0


def _fail(reason: str) -> int:
    print(f"flower: cannot start: {reason}", file=sys.stderr)  # noqa: T201
    return _CANNOT_START


if __name__ == "__main__":
    sys.exit(main())
