"""What a worker serves now, and the change to another generation while calls run."""

import contextlib
import fcntl
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from readie.generations.disk import MANIFEST, current_generation
from readie.sentinel import server_urls

from . import checkpoints
from .checkpoints import Served
from .packages.layers import PackageLayers, layers_folder
from .packages.store import LayerStore
from .preflight import CannotStartError
from .sandbox.abandoned import remove_abandoned_groups
from .sandbox.demand import Demand
from .sandbox.filesystem import DESCRIPTION
from .sandbox.host import SandboxHost
from .sandbox.network.check import check_network
from .sandbox.network.gateway import Gateway, NetworkUnavailableError
from .sandbox.run_folder import own, remove_leftovers
from .sandbox.runsc import Runsc
from .sandbox.sandbox import SandboxFailedError
from .sandbox.supply import Ahead, SandboxSupply
from .settings import WorkerSettings
from .sources import new_ids, sources

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 2.0


class Stage:
    """A generation's checkpoints and the sandboxes they are restored in. ``users`` is guarded by its ``Serving``.

    ``lock_files`` are descriptors whose locks say that the generation and the filesystem are in use.
    """

    def __init__(
        self,
        served: Served,
        host: SandboxHost,
        supply: SandboxSupply,
        layers: PackageLayers,
        lock_files: list[int],
    ) -> None:
        self.served = served
        self.supply = supply
        self.layers = layers
        self.users = 0
        self._host = host
        self._lock_files = lock_files

    def imported_by(self, checkpoint_id: str | None) -> tuple[str, ...]:
        """Return the catalogued modules that a checkpoint holds."""
        checkpoints = self.served.catalogue.checkpoints if self.served.catalogue else ()
        return next((each.holds for each in checkpoints if each.id == checkpoint_id), ())

    def close(self) -> None:
        """Remove its sandboxes and let the generation go."""
        self.supply.close()
        self._host.close()
        self.layers.close()
        for descriptor in self._lock_files:
            os.close(descriptor)


class Serving:
    """Hands out the current stage; takes up what ``current`` leads to when that changes.

    A call keeps the stage it began with. ``_stage`` and each stage's ``users`` are guarded by ``_lock``.

    Args:
        settings: where flavor and generations lie, and how sandboxes are made.
        runsc: what makes them.
        run_dir: this worker's folder for sandboxes' files.
        failed: is told, from any thread, of checkpoints that could not be restored.

    Raises:
        CannotStartError: the flavor has no filesystem on this machine, or sandboxes can't have the network they should.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        runsc: Runsc,
        run_dir: Path,
        failed: Callable[[str | None, SandboxFailedError], None] = lambda *_: None,
    ) -> None:
        self._settings = settings
        self._runsc = runsc
        self._run_dir = run_dir
        self._failed = failed
        self._lock = threading.Lock()
        self._stages_opened = 0
        self._closed = threading.Event()
        self._ready_changed: Callable[[], None] = _nobody
        self._watcher: threading.Thread | None = None
        self._target: Path | None = None
        with contextlib.ExitStack() as opened:
            opened.callback(os.close, own(run_dir))
            opened.callback(shutil.rmtree, run_dir)
            opened.callback(remove_leftovers, run_dir)
            remove_leftovers(run_dir)
            remove_abandoned_groups()
            self._gateway = _open_gateway(settings)
            if self._gateway is not None:
                opened.callback(self._gateway.close)
            self._stage = self._open_first()
            self._opened = opened.pop_all()

    @property
    def served(self) -> Served:
        """What new calls are served from."""
        return self._stage.served

    @property
    def supply(self) -> SandboxSupply:
        """Gives the sandboxes of new calls."""
        return self._stage.supply

    @property
    def ready_counts(self) -> dict[str | None, int]:
        """How many ready sandboxes there are by checkpoint, ``None`` for those that were started cold."""
        return self._stage.supply.ready_counts

    @contextlib.contextmanager
    def use(self) -> Iterator[Stage]:
        """Give the current stage, which stays whole until the end of the block."""
        with self._lock:
            stage = self._stage
            stage.users += 1
        try:
            yield stage
        finally:
            with self._lock:
                stage.users -= 1
                last = stage is not self._stage and stage.users == 0
            if last:
                # Closing waits for the removal of sandboxes: not in the way of the call that ends here.
                threading.Thread(target=stage.close, name="close-stage").start()

    def watch(self, changed: Callable[[Served], None], ready_changed: Callable[[], None]) -> None:
        """Begin to look for another generation.

        Args:
            changed: is told what is served from now on.
            ready_changed: called, from any thread and often, when there may be other ready sandboxes than before.
        """
        self._ready_changed = ready_changed
        self._watcher = threading.Thread(target=self._watch, args=(changed,), name="generation-watch", daemon=True)
        self._watcher.start()

    def drain(self) -> None:
        """Make nothing ahead any more: no calls are to come."""
        self._stage.supply.stop()

    def close(self) -> None:
        """Remove every sandbox and file; no call runs any more."""
        self._closed.set()
        if self._watcher is not None:
            self._watcher.join()
        self._stage.close()
        self._opened.close()

    def _open_first(self) -> Stage:
        while True:
            self._target = current_generation(self._settings.data, self._settings.flavor)
            with contextlib.suppress(_RemovedError):
                return self._open(checkpoints.load(self._settings, self._runsc.version), Demand())

    def _open(self, served: Served, demand: Demand) -> Stage:
        lock_files = _hold(_files_in_use(served))
        self._stages_opened += 1
        filesystem = served.filesystem
        store = LayerStore(layers_folder(self._settings.data, filesystem), self._settings.packages_bytes)
        host = SandboxHost(
            self._run_dir / str(self._stages_opened),
            self._runsc.executable,
            filesystem,
            served.shape,
            memory_bytes=self._settings.sandbox_memory_bytes,
            gateway=self._gateway,
            layers=store.layers,
        )
        if self._stages_opened == 1 and self._gateway is not None:
            try:
                check_network(host)
            except NetworkUnavailableError as error:
                host.close()
                raise CannotStartError(str(error)) from None
        supply = SandboxSupply(
            host,
            sources(served),
            Ahead(self._settings.created_sandboxes, self._settings.ready_memory_bytes, demand),
            changed=self._tell_ready_changed,
            failed=self._failed,
            start_timeout_seconds=self._settings.start_timeout_seconds,
        )
        return Stage(served, host, supply, PackageLayers(store, filesystem, host), lock_files)

    def _tell_ready_changed(self) -> None:
        self._ready_changed()

    def _watch(self, changed: Callable[[Served], None]) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            target = current_generation(self._settings.data, self._settings.flavor)
            if target is None or target == self._target:
                continue
            self._target = target
            try:
                self._take_up(target, changed)
            except Exception:
                _log.exception("generation %s can't be taken up; what was served before is served on", target.name)

    def _take_up(self, target: Path, changed: Callable[[Served], None]) -> None:
        try:
            served = checkpoints.load(self._settings, self._runsc.version)
        except CannotStartError as error:
            _log.error("generation %s can't be taken up: %s", target.name, error)
            return
        if served.folder != target:
            _log.error("generation %s does not fit this worker; what was served before is served on", target.name)
            return
        stage = self._open(served, self._stage.supply.demand(new_ids(self._stage.served, served)))
        with self._lock:
            former, self._stage = self._stage, stage
            unused = former.users == 0
        former.supply.close()
        _log.info("generation %s is served from now on", served.generation_id)
        changed(served)
        if unused:
            former.close()


class _RemovedError(Exception):
    """What was to be served is gone; the text names the file."""


def _open_gateway(settings: WorkerSettings) -> Gateway | None:
    if settings.sandbox_network != "sandbox":
        return None
    try:
        return Gateway(server_urls(settings.redis_url))
    except NetworkUnavailableError as error:
        raise CannotStartError(str(error)) from None


def _nobody() -> None:
    pass


def _files_in_use(served: Served) -> list[Path]:
    """Return the files whose locks say that a generation and a filesystem are in use."""
    filesystem = served.filesystem.packages.parent / DESCRIPTION
    return [filesystem] if served.folder is None else [filesystem, served.folder / MANIFEST]


def _hold(paths: list[Path]) -> list[int]:
    """Lock files against removal; raises ``_RemovedError`` when one went before its lock was had."""
    held: list[int] = []
    try:
        for path in paths:
            held.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            fcntl.flock(held[-1], fcntl.LOCK_SH)
            path.stat()
    except FileNotFoundError as error:
        for descriptor in held:
            os.close(descriptor)
        raise _RemovedError(f"{error.filename} was just removed") from None
    return held
