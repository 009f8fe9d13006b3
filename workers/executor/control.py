"""The control directory: files through which the worker and an executor without a connection tell each other things.

Nothing of it can be an argument or an environment variable: a restored process keeps those of its capture. The
directory is bind-mounted, so a restored process sees at once what its own worker put there.

``imports.json``    worker → executor, before the start: JSON list of modules to import for a snapshot
``imported.json``   executor → worker: the report of these imports, and "take the snapshot now"
``go``              worker → executor: "restored" or "started", how this process came to be
``executor.sock``   executor → worker: connectable as soon as it is there; who connects is greeted once it is ready
``failure``         executor → worker: traceback, when it could not get ready

The executor writes each under another name and renames it, so the worker sees one event per file, when it is whole.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, cast

IMPORTS = "imports.json"
IMPORTED = "imported.json"
GO = "go"
SOCKET = "executor.sock"
FAILURE = "failure"

Start = Literal["restored", "started"]

_GO_POLL_SECONDS = 0.001
_MAX_GO_BYTES = 64


def read_imports(control: Path) -> list[str] | None:
    """Return the modules to import for a snapshot, or None when no snapshot is to be taken."""
    try:
        return cast("list[str]", json.loads((control / IMPORTS).read_text()))
    except FileNotFoundError:
        return None


def write_imported(control: Path, report: Mapping[str, object]) -> None:
    """Tell the worker that the imports are done."""
    _write_atomically(control / IMPORTED, json.dumps(report))


def write_failure(control: Path, traceback_text: str) -> None:
    """Tell the worker why this executor cannot get ready."""
    _write_atomically(control / FAILURE, traceback_text)


def wait_for_go(control: Path) -> Start:
    """Return how this process came to be.

    Polls, because neither an inotify watch nor a connection outlives a snapshot. What a restored process touches of its
    memory, it touches for the first time, and gVisor brings it in piece by piece: hence as little Python as possible.
    """
    path = os.fspath(control / GO)
    while True:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            time.sleep(_GO_POLL_SECONDS)
            continue
        content = os.read(descriptor, _MAX_GO_BYTES)
        os.close(descriptor)
        if content == b"restored":
            return "restored"
        if content == b"started":
            return "started"
        raise ValueError(f"{path} holds {content!r}")


def listen(control: Path) -> socket.socket:
    """Open the socket on which the worker connects; it appears under its name once it can be connected to."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    temporary = f"{control}/.{SOCKET}"
    listener.bind(temporary)
    listener.listen(1)
    os.rename(temporary, f"{control}/{SOCKET}")  # noqa: PTH104 - see wait_for_go
    return listener


def _write_atomically(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(text)
    temporary.rename(path)
