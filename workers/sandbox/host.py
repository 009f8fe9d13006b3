"""All sandboxes of one worker on this machine, and the folder they live in."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from workers.sandbox.cgroup import open_cgroups
from workers.sandbox.events import FileWaiter
from workers.sandbox.filesystem import Filesystem
from workers.sandbox.fingerprint import fingerprint
from workers.sandbox.network.gateway import Gateway
from workers.sandbox.network.slots import Slots
from workers.sandbox.remover import Remover
from workers.sandbox.root import make_root
from workers.sandbox.run_folder import own, remove_leftovers
from workers.sandbox.runsc import Runsc
from workers.sandbox.sandbox import Sandbox, SandboxPlan, new_sandbox_id
from workers.sandbox.shape import SandboxShape, sandbox_shape

_CREATE_SECONDS = 30.0
_MAX_SOCKET_PATH_BYTES = 107


class SandboxHost:
    """Makes and takes away a worker's sandboxes; everything of them is below ``run_dir``.

    ``run_dir`` belongs to one process at a time, which a lock makes sure; what a former one left there is removed
    first. Safe to use from several threads. ``_live`` is guarded by ``_lock``.
    """

    def __init__(
        self,
        run_dir: Path,
        runsc: Path,
        filesystem: Filesystem,
        shape: SandboxShape | None = None,
        *,
        platform: str = "systrap",
        memory_bytes: int | None = None,
        gateway: Gateway | None = None,
        layers: Path | None = None,
    ) -> None:
        """Take ``run_dir`` over.

        A sandbox may hold ``memory_bytes`` until its call says something else; ``None`` is without limit.
        ``gateway`` gives sandboxes their network when the shape's is ``sandbox``; whoever opened it closes it later.
        ``layers`` is the folder with the packages of calls, where there can be any.
        Raises ``ValueError`` when the path is too long, ``RuntimeError`` when a running worker has it, ``RunscError``
        when runsc does not run.
        """
        longest = run_dir / new_sandbox_id() / "state" / f"runsc-{new_sandbox_id()}.sock"
        if (excess := len(os.fsencode(longest)) - _MAX_SOCKET_PATH_BYTES) > 0:
            raise ValueError(f"the run folder's path is {excess} bytes too long for runsc's sockets: {run_dir}")
        self.run_dir = run_dir
        self.filesystem = filesystem
        self.shape = shape or sandbox_shape(filesystem)
        assert (self.shape.network == "sandbox") == (gateway is not None)
        self.fingerprint = fingerprint(self.shape)
        tool = Runsc(runsc)
        self.runsc_version = tool.version
        self._lock_file = own(run_dir)
        remove_leftovers(run_dir)
        self._slots = Slots(gateway.new_slot) if gateway else None
        self._waiter = FileWaiter()
        self._cgroups = open_cgroups(run_dir)
        self._plan = SandboxPlan(
            tool,
            platform,
            self.shape,
            filesystem,
            make_root(
                run_dir / "root",
                network=self.shape.network,
                nameserver=gateway.nameserver if gateway else None,
            ),
            layers or _make_empty(run_dir / "layers"),
            self._waiter,
            cgroups=self._cgroups,
            memory_bytes=memory_bytes,
            slots=self._slots,
        )
        self._lock = threading.Lock()
        self._live: set[Sandbox] = set()
        self._closed = False
        self._remover = Remover(self._gone)

    def take(self, *, background: bool = False, to_restore: bool = False) -> Sandbox:
        """Return a new created sandbox (see ``Sandbox``); it is the caller's until ``discard``.

        Raises ``SandboxFailedError``.
        """
        sandbox = Sandbox(
            self._plan, self.run_dir, timeout=_CREATE_SECONDS, background=background, to_restore=to_restore
        )
        with self._lock:
            self._live.add(sandbox)
        return sandbox

    def discard(self, sandbox: Sandbox) -> None:
        """Kill ``sandbox`` at once and remove it in the background."""
        self._remover.remove(sandbox)

    def close(self) -> None:
        """Destroy every sandbox, given out or not, and return when nothing is left, of ``run_dir`` either."""
        if self._closed:
            return
        self._closed = True
        with self._lock:
            live = list(self._live)
        for sandbox in live:
            self.discard(sandbox)
        self._remover.close()
        if self._slots is not None:
            self._slots.close()
        self._waiter.close()
        if self._cgroups is not None:
            self._cgroups.close()
        remove_leftovers(self.run_dir)
        shutil.rmtree(self.run_dir)
        os.close(self._lock_file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _gone(self, sandbox: Sandbox) -> None:
        with self._lock:
            self._live.discard(sandbox)


def _make_empty(folder: Path) -> Path:
    folder.mkdir()
    return folder
