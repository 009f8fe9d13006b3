"""Counts how often functions really ran, apart from anything the product says: by files that they read from inside.

Sandboxes can write nothing on the host. But when they read one of the host's files, which they see read-only, the
host's kernel tells whoever watches the folder.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import threading
from collections import Counter
from pathlib import Path

_IN_ACCESS = 0x1
_IN_OPEN = 0x20
"""Watched as well, so that two reads are never told as one."""
_IN_ISDIR = 0x40000000
_IN_Q_OVERFLOW = 0x4000
_EVENT = struct.Struct("iIII")
SHOWN = Path("/usr/local/share")
"""Every sandbox sees this folder of the host."""


class Executions:
    """A folder of marker files; counts how often each was read. ``_reads`` is guarded by ``_lock``."""

    def __init__(self) -> None:
        self.folder = SHOWN / f"readie-chaos-{os.getpid()}"
        self.folder.mkdir(parents=True)
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_CLOEXEC)
        if (
            self._descriptor < 0
            or libc.inotify_add_watch(self._descriptor, os.fsencode(self.folder), _IN_ACCESS | _IN_OPEN) < 0
        ):
            raise OSError(ctypes.get_errno(), "inotify")
        self._lock = threading.Lock()
        self._reads: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._read, name="executions", daemon=True)
        self._thread.start()

    def marker(self, name: str) -> str:
        """Make a file and return its path; the function is to read it when it runs."""
        path = self.folder / name
        path.write_text("x")
        return str(path)

    def of(self, name: str) -> int:
        """Return how often a function ran."""
        with self._lock:
            return self._reads[name]

    def close(self) -> None:
        """Remove the folder."""
        Path(self.marker("end")).read_text()
        self._thread.join()
        os.close(self._descriptor)
        shutil.rmtree(self.folder)

    def _read(self) -> None:
        while True:
            data = os.read(self._descriptor, 1 << 16)
            offset = 0
            while offset < len(data):
                _, mask, _, length = _EVENT.unpack_from(data, offset)
                name = data[offset + _EVENT.size : offset + _EVENT.size + length].rstrip(b"\0").decode()
                offset += _EVENT.size + length
                assert not mask & _IN_Q_OVERFLOW, "too many executions to count"
                if mask & _IN_ISDIR or not mask & _IN_ACCESS:
                    continue
                if name == "end":
                    return
                if name:
                    with self._lock:
                        self._reads[name] += 1
