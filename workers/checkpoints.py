"""What a worker serves: a flavor's filesystem, and its current generation's checkpoints if they fit this worker."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from readie.generations.disk import Generation, GenerationError, current_generation, load_generation
from readie.protocol.catalogue import Catalogue

from .executor.wire import WIRE_VERSION
from .generation import Identity, check, decide, host_cpu_features
from .pipeline.filesystem import measured_digest
from .preflight import CannotStartError
from .sandbox.filesystem import Filesystem, read_filesystem
from .sandbox.fingerprint import fingerprint
from .sandbox.runsc import RunscOptions
from .sandbox.shape import SandboxShape, sandbox_shape
from .settings import WorkerSettings

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Served:
    """What this worker's sandboxes are made from; ``catalogue`` is ``None`` when there are cold starts only."""

    filesystem: Filesystem
    shape: SandboxShape
    generation_id: str | None
    folder: Path | None
    """The generation's."""
    catalogue: Catalogue | None
    images: Mapping[str, Path]


def load(settings: WorkerSettings, runsc_version: str) -> Served:
    """Find what to serve.

    Raises:
        CannotStartError: the flavor has no filesystem on this machine.
    """
    generation = _read_current(settings)
    filesystem = _find_filesystem(settings, generation)
    shape = sandbox_shape(
        filesystem,
        network=settings.sandbox_network,
        overlay=settings.sandbox_overlay,
        gpu=settings.sandbox_gpu,
    )
    if generation is not None:
        own = Identity(
            runsc_version=runsc_version,
            fingerprint=fingerprint(shape),
            # What is on disk now, not what it was built as: a changed library would be mixed into restored processes.
            filesystem_digest=measured_digest(filesystem),
            python=filesystem.python_version,
            cpu_features=host_cpu_features(),
            platform=RunscOptions.platform,
            wire_version=WIRE_VERSION,
        )
        decision = decide(check(generation, own), strict=settings.checkpoint_strict_compat)
        for message in decision.messages:
            _log.log(decision.level, "generation %s: %s", generation.manifest.generation, message)
        if decision.keep:
            return Served(
                filesystem,
                shape,
                generation.manifest.generation,
                generation.path,
                generation.catalogue,
                generation.checkpoints,
            )
    return Served(filesystem, shape, None, None, None, {})


def _read_current(settings: WorkerSettings) -> Generation | None:
    if settings.sandbox_network == "host":
        _log.warning("SANDBOX_NETWORK=host: every call starts cold, and can reach all that this machine can")
        return None
    folder = current_generation(settings.data, settings.flavor)
    if folder is None:
        _log.warning(
            "flavor %s has no generation: every call starts cold; `make generation` makes one", settings.flavor
        )
        return None
    try:
        generation = load_generation(folder)
    except GenerationError as error:
        _log.error("every call starts cold: %s", error)
        return None
    for checkpoint_id, problem in generation.dropped.items():
        _log.error("%s of generation %s is dropped: %s", checkpoint_id, generation.manifest.generation, problem)
    return generation


def _find_filesystem(settings: WorkerSettings, generation: Generation | None) -> Filesystem:
    """Return the generation's own filesystem where it is here, else the flavor's current one."""
    flavor = settings.data / "flavors" / settings.flavor
    if generation is not None and (flavor / generation.manifest.filesystem_digest).is_dir():
        folder = flavor / generation.manifest.filesystem_digest
    else:
        folder = flavor / "current"
    try:
        return read_filesystem(folder)
    except (OSError, ValueError) as error:
        raise CannotStartError(
            f"flavor {settings.flavor!r} has no filesystem in {flavor}: {error}. `make generation` builds it; "
            "READIE_DATA names another folder"
        ) from None
