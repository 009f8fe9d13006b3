"""The wall clock of one process, which jumps on demand."""

import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.debian import find_program


class Clock:
    """What a program that is started with ``environment`` takes for the time of day.

    Its monotonic clock stays right, as it does when a real clock is set.

    Args:
        folder: of the two files that this needs.
    """

    def __init__(self, folder: Path) -> None:
        library, self._offset = folder / "clock.so", folder / "clock.offset"
        source = Path(__file__).with_name("clock.c")
        subprocess.run([find_program("gcc"), "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
        self._seconds = 0.0
        self._offset.write_bytes(struct.pack("d", 0))
        self.environment: Mapping[str, str] = {"LD_PRELOAD": str(library), "CLOCK_OFFSET": str(self._offset)}

    def jump(self, seconds: float) -> None:
        """Set the clock ahead, or back."""
        self._seconds += seconds
        with self._offset.open("r+b") as file:
            file.write(struct.pack("d", self._seconds))
