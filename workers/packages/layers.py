"""A call's packages: from its requirements to a layer that its sandbox can use."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name

from workers.control import StoppedError
from workers.executor import layout
from workers.packages.build import Builder, PackagesError
from workers.packages.requirements import conflicts, key_of, lacking
from workers.packages.store import LayerRecord, LayerStore
from workers.pipeline.installed import Installed
from workers.sandbox.filesystem import Filesystem
from workers.sandbox.host import SandboxHost
from workers.sandbox.starter import Caller

logger = logging.getLogger(__name__)

_FIXED: Final = "cloudpickle"
"""Every executor has imported it."""
_FAILURE_SECONDS: Final = 10.0
"""For so long, what failed is not tried again: many calls may have asked for it at once."""


@dataclass
class Layer:
    """Packages that a call's sandbox gets, the call's until ``close``."""

    path: str | None
    """In the sandbox; ``None`` when the flavor has everything."""
    pins: dict[str, str]
    modules: tuple[str, ...]
    installed: bool
    """Whether they were installed for this very call."""
    _descriptor: int | None = field(default=None, repr=False)

    def conflicts(self, imported: Sequence[str]) -> list[str]:
        """Return its modules that a checkpoint has imported from elsewhere."""
        return conflicts(self.modules, imported)

    def close(self) -> None:
        """Say that it is used no more."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __str__(self) -> str:
        if self.path is None:
            return "the flavor has them"
        pins = ", ".join(f"{name} {version}" for name, version in sorted(self.pins.items()))
        return f"{'installed' if self.installed else 'kept from an earlier call'}: {pins}"


def layers_folder(data: Path, filesystem: Filesystem) -> Path:
    """Return where the layers lie that fit a filesystem and its Python."""
    return data / "packages" / key_of([filesystem.digest, filesystem.python_version])[:16]


class PackageLayers:
    """Gives calls their packages. Safe to use from several threads.

    Args:
        store: where layers are kept.
        filesystem: of the flavor.
        host: makes the sandboxes that packages are installed in.
    """

    def __init__(self, store: LayerStore, filesystem: Filesystem, host: SandboxHost) -> None:
        self._store = store
        self._filesystem = filesystem
        self._builder = Builder(host, store.layers)
        self._installed: dict[str, str] | None = None
        self._failures: dict[str, tuple[float, PackagesError]] = {}

    def take(self, packages: Sequence[str], caller: Caller, say: Callable[[str], None]) -> Layer:
        """Return the layer with ``packages`` and what they need, installed now unless it is there.

        ``say`` is told, in words for people, when that takes a while. Raises ``PackagesError``, or ``StoppedError``
        when the call is cancelled meanwhile.
        """
        installed = self._versions()
        try:
            requirements = lacking(packages, installed)
        except ValueError as error:
            raise PackagesError(str(error)) from None
        if not requirements:
            return Layer(None, {}, (), installed=False)
        key = key_of(requirements)
        while True:
            record, built = self._store.find(key), False
            if record is None:
                record, built = self._build(key, requirements, caller, say)
            if record.name is None:
                return Layer(None, {}, (), installed=built)
            if (descriptor := self._store.hold(record)) is not None:
                path = str(layout.LAYERS_DIR / record.name)
                return Layer(path, record.pins, record.modules, built, descriptor)

    def close(self) -> None:
        """Give the layers up; no call uses one any more."""
        self._store.close()

    def _build(
        self, key: str, requirements: list[str], caller: Caller, say: Callable[[str], None]
    ) -> tuple[LayerRecord, bool]:
        def check() -> None:
            if caller.cancelled:
                raise StoppedError

        installed = self._versions()
        with self._store.building(key, check):
            if (record := self._store.find(key)) is not None:
                return record, False
            failed_at, failure = self._failures.get(key, (float("-inf"), None))
            if failure is not None and time.monotonic() - failed_at < _FAILURE_SECONDS:
                raise failure
            say(f"installing {', '.join(requirements)}")
            began = time.monotonic()
            try:
                built = self._builder.build(requirements, {_FIXED: installed[_FIXED]}, caller)
                record = self._store.add(key, built.pins, built.packed, trusted=built.trusted)
            except (PackagesError, ValueError, OSError) as error:
                check()
                failure = error if isinstance(error, PackagesError) else PackagesError(str(error))
                self._failures = {key: (time.monotonic(), failure)}
                raise failure from error
            say(f"installed {', '.join(requirements)} in {time.monotonic() - began:.1f} s")
            return record, True

    def _versions(self) -> dict[str, str]:
        """Return the flavor's versions by canonical name; it is read when first asked for."""
        if self._installed is None:
            versions = Installed(self._filesystem.packages).versions
            self._installed = {canonicalize_name(name): version for name, version in versions.items()}
        return self._installed
