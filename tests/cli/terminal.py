"""Commands in a real terminal of a given width."""

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence

_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-_])")
_MARK = "\x1e"
_PROGRAM = f"""
import json, sys
from readie.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["readie", *arguments]
    status = 0
    try:
        main()
    except SystemExit as end:
        status = end.code or 0
    print("{_MARK}" + str(status) + "{_MARK}", flush=True)
"""


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], columns: int = 80) -> None:
        self._main, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.before = termios.tcgetattr(child)
        environment = {**environment, "TERM": "xterm", "PS1": "$ "}
        environment.pop("COLUMNS", None)
        self.process = subprocess.Popen(
            command, stdin=child, stdout=child, stderr=child, env=environment, start_new_session=True
        )
        self._child = child
        self._shown = b""

    @property
    def text(self) -> str:
        """All that it has shown, with escapes."""
        return self._shown.decode(errors="replace")

    def forget(self) -> None:
        """Begin anew with what it has shown."""
        self._shown = b""

    def press(self, keys: str) -> None:
        os.write(self._main, keys.encode())

    def settings(self) -> list[object]:
        """Return how the terminal is set now."""
        return list(termios.tcgetattr(self._child))

    def read_until(self, condition: str, seconds: float = 60) -> str:
        """Return all that it has shown, without escapes, once that has a match of a pattern."""
        deadline = time.monotonic() + seconds
        while not re.search(condition, plain(self.text)):
            assert time.monotonic() < deadline, f"not shown within {seconds} s: {condition!r} in {plain(self.text)!r}"
            self._read(0.2)
        return plain(self.text)

    def read_to_end(self, seconds: float = 120) -> str:
        """Return all that it has shown, without escapes, at its end."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it goes on: {plain(self.text)!r}"
            self._read(0.1)
        while self._read(0):
            pass
        return plain(self.text)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._child)
        os.close(self._main)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._main], [], [], seconds)[0]:
            return False
        self._shown += os.read(self._main, 65536)
        return True


def plain(text: str) -> str:
    """Return text as it is seen: without escapes, and of what was written over the last state."""
    lines = _ESCAPES.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def run_all(commands: Sequence[Sequence[str]], environment: Mapping[str, str], columns: int) -> list[tuple[int, str]]:
    """Run commands one after the other in one terminal; return the exit status and what is seen of each."""
    terminal = Terminal([sys.executable, "-c", _PROGRAM, json.dumps([*map(list, commands)])], environment, columns)
    try:
        parts = terminal.read_to_end().split(_MARK)
    finally:
        terminal.close()
    assert len(parts) == 2 * len(commands) + 1, parts[-1]
    return [(int(status), shown) for shown, status in zip(parts[:-1:2], parts[1::2], strict=True)]
