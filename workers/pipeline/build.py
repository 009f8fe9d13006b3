"""Making a generation, from a flavor's folder to the switched link."""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final

from readie.protocol.catalogue import Catalogue, Checkpoint, Module
from readie.settings import FlavorSettings
from workers.executor.wire import WIRE_VERSION
from workers.generation import (
    CATALOGUE,
    CHECKPOINTS,
    CURRENT,
    MANIFEST,
    META,
    CheckpointMeta,
    Generation,
    GenerationError,
    Identity,
    ImageFile,
    Manifest,
    check,
    current_generation,
    generations_folder,
    host_cpu_features,
    load_generation,
    read_meta,
)
from workers.pipeline import probe
from workers.pipeline.capture import (
    Restore,
    capture,
    refuse_equal_clones,
    restore,
    run,
    start_cold,
    time_cold_starts,
)
from workers.pipeline.cost import fit
from workers.pipeline.digest import file_digest
from workers.pipeline.filesystem import Built, build_filesystem
from workers.pipeline.flavor import Flavor
from workers.pipeline.measure import Measurer, attribute, shared_packages, top_level
from workers.pipeline.progress import Progress
from workers.pipeline.publish import building_in, publish, staging, switch
from workers.pipeline.runs import KnownRuns
from workers.sandbox.host import SandboxHost
from workers.sandbox.runsc import RunscOptions
from workers.sandbox.sandbox import ImportReport
from workers.sandbox.shape import sandbox_shape

logger = logging.getLogger(__name__)

PLATFORM: Final = RunscOptions.platform
RESTORES_PER_CHECKPOINT: Final = 7
COLD_STARTS: Final = 5

_RUN_DIR: Final = Path("/run/readie")
_FORMAT: Final = 1
"""Raised when generations are made in another way from the same inputs."""


@dataclass(frozen=True)
class Made:
    """The generation that ``current`` now leads to."""

    generation: Generation
    reused: bool
    """Whether it was there already."""


@dataclass(frozen=True)
class _Image:
    meta: CheckpointMeta
    megabytes: float
    loaded: frozenset[str]
    restore_seconds: float
    """Median."""


def make_generation(flavor: Flavor, settings: FlavorSettings, runsc: Path, progress: Progress) -> Made:
    """Make a generation of ``flavor`` and switch to it, or to one made earlier from the very same inputs.

    Raises ``FlavorError``, ``CaptureError``, ``BusyError``, ``SandboxFailedError``, ``RunscError`` or ``OSError``;
    ``current`` then leads to where it did before, and what was half done is removed, by the next run at the latest.
    """
    data = settings.data.resolve()
    folder = generations_folder(data, flavor.name)
    with building_in(folder):
        built = build_filesystem(flavor, data, progress.say)
        progress.say(f"filesystem {built.filesystem.digest[:12]} {'unchanged' if built.reused else 'built'}")
        shape = sandbox_shape(
            built.filesystem,
            network=settings.sandbox_network,
            overlay=settings.sandbox_overlay,
            gpu=settings.sandbox_gpu,
        )
        run_dir = _RUN_DIR / f"pipeline-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"
        with SandboxHost(run_dir, runsc, built.filesystem, shape, platform=PLATFORM) as host:
            identity = _identity(host, built)
            found = _find(folder, identity, _inputs_digest(identity, flavor.plan))
            if found is not None:
                made = Made(found, reused=True)
            else:
                known = KnownRuns(
                    data / "measurements" / f"{flavor.name}.json", built.filesystem.packages, identity.runsc_version
                )
                try:
                    made = Made(_build(folder, flavor, host, identity, known, progress), reused=False)
                finally:
                    known.save()
        if current_generation(data, flavor.name) != made.generation.path:
            switch(folder / CURRENT, made.generation.path.name)
    return made


def verify(generation: Generation) -> list[str]:
    """Return what is wrong with the files of ``generation``, by content; empty when all is as it was written."""
    problems = [f"{checkpoint_id}: {reason}" for checkpoint_id, reason in generation.dropped.items()]
    for checkpoint_id, image in generation.checkpoints.items():
        for name, file in read_meta(image).files.items():
            if file_digest(image / name) != file.sha256:
                problems.append(f"{checkpoint_id}: the content of {name} has changed")
    return problems


def _identity(host: SandboxHost, built: Built) -> Identity:
    return Identity(
        runsc_version=host.runsc_version,
        fingerprint=host.fingerprint,
        filesystem_digest=built.filesystem.digest,
        python=built.filesystem.python_version,
        cpu_features=host_cpu_features(),
        platform=PLATFORM,
        wire_version=WIRE_VERSION,
    )


def _inputs_digest(identity: Identity, plan: Sequence[Sequence[str]]) -> str:
    inputs = {
        "format": _FORMAT,
        "runsc_version": identity.runsc_version,
        "fingerprint": identity.fingerprint,
        "filesystem_digest": identity.filesystem_digest,
        "platform": identity.platform,
        "wire_version": identity.wire_version,
        "plan": plan,
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def _find(folder: Path, identity: Identity, inputs: str) -> Generation | None:
    """Return the newest generation that was made from ``inputs``, fits this machine and is whole."""
    for manifest in sorted(folder.glob(f"*/{MANIFEST}"), reverse=True):
        if manifest.parent.is_symlink() or manifest.parent.name.startswith("."):
            continue
        try:
            generation = load_generation(manifest.parent.resolve())
        except GenerationError as error:
            logger.warning("%s", error)
            continue
        if generation.manifest.inputs_digest != inputs or check(generation, identity):
            continue
        if problems := verify(generation):
            logger.warning("%s is damaged and not used: %s", manifest.parent.name, "; ".join(problems))
            continue
        return generation
    return None


def _build(  # noqa: PLR0917
    folder: Path, flavor: Flavor, host: SandboxHost, identity: Identity, known: KnownRuns, progress: Progress
) -> Generation:
    inputs = _inputs_digest(identity, flavor.plan)
    created_at = datetime.now(UTC).replace(microsecond=0)
    generation_id = f"{created_at:%Y%m%dT%H%M%S}-{inputs[:8]}"
    plan = ((), *flavor.plan)
    with staging(folder) as staged:
        images = _capture_all(staged / CHECKPOINTS, plan, host, progress)
        modules = _measure(flavor, host, known, progress)
        catalogue = Catalogue(
            generation=generation_id,
            flavor=flavor.name,
            python=identity.python,
            filesystem_digest=identity.filesystem_digest,
            cost=fit(
                [(image.megabytes, image.restore_seconds) for image in images],
                time_cold_starts(host, COLD_STARTS),
            ),
            modules=modules,
            checkpoints=tuple(
                Checkpoint(
                    id=image.meta.checkpoint_id,
                    imported=image.meta.imports,
                    holds=tuple(sorted(image.loaded & modules.keys())),
                    megabytes=image.megabytes,
                    restore_seconds=image.restore_seconds,
                )
                for image in images
            ),
        )
        manifest = Manifest(
            generation=generation_id,
            flavor=flavor.name,
            created_at=created_at,
            runsc_version=identity.runsc_version,
            fingerprint=identity.fingerprint,
            command=host.shape.command,
            wire_version=identity.wire_version,
            python_path=host.shape.command[0],
            python=identity.python,
            overlay=host.shape.overlay,
            network=host.shape.network,
            gpu=host.shape.gpu,
            platform=identity.platform,
            filesystem_digest=identity.filesystem_digest,
            cpu_features=_needed_cpu_features(host, identity),
            checkpoints=tuple(image.meta.checkpoint_id for image in images),
            inputs_digest=inputs,
        )
        (staged / CATALOGUE).write_text(catalogue.model_dump_json(indent=2) + "\n")
        (staged / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n")
        publish(staged, folder / generation_id)
    return load_generation(folder / generation_id)


def _capture_all(
    checkpoints: Path, plan: Sequence[Sequence[str]], host: SandboxHost, progress: Progress
) -> list[_Image]:
    reports: dict[str, ImportReport] = {}
    with progress.stage("capturing", len(plan)) as advance:
        for number, imports in enumerate(plan):
            checkpoint_id = f"checkpoint_{number}"
            reports[checkpoint_id] = capture(host, imports, checkpoints / checkpoint_id)
            advance(checkpoint_id)
    restores: dict[str, list[Restore]] = {checkpoint_id: [] for checkpoint_id in reports}
    with progress.stage("restoring", len(plan) * RESTORES_PER_CHECKPOINT) as advance:
        # In turn, so that what else the machine does for a while burdens all of them alike.
        for _ in range(RESTORES_PER_CHECKPOINT):
            for checkpoint_id, taken in restores.items():
                taken.append(restore(host, checkpoints / checkpoint_id))
                advance(checkpoint_id)
    images = []
    for (checkpoint_id, report), imports in zip(reports.items(), plan, strict=True):
        refuse_equal_clones(checkpoint_id, restores[checkpoint_id])
        meta = _describe(checkpoints / checkpoint_id, checkpoint_id, imports, host)
        (checkpoints / checkpoint_id / META).write_text(meta.model_dump_json(indent=2) + "\n")
        seconds = median(taken.seconds for taken in restores[checkpoint_id])
        images.append(_Image(meta, report.anonymous_mb, frozenset(report.loaded), seconds))
    return images


def _measure(flavor: Flavor, host: SandboxHost, known: KnownRuns, progress: Progress) -> dict[str, Module]:
    measurer = Measurer(host, known)
    planned = {name for imports in flavor.plan for name in imports}
    with progress.stage("measuring planned imports", len(top_level(planned))) as advance:
        runs = measurer.import_all(planned, advance)
    names = planned | shared_packages(runs, host.filesystem.packages)
    with progress.stage("measuring what they share", len(top_level(names))) as advance:
        return attribute(measurer.import_all(names, advance))


def _describe(image: Path, checkpoint_id: str, imports: Sequence[str], host: SandboxHost) -> CheckpointMeta:
    return CheckpointMeta(
        checkpoint_id=checkpoint_id,
        runsc_version=host.runsc_version,
        fingerprint=host.fingerprint,
        filesystem_digest=host.filesystem.digest,
        imports=tuple(imports),
        files={
            file.name: ImageFile(size_bytes=file.stat().st_size, sha256=file_digest(file))
            for file in sorted(image.iterdir())
        },
    )


def _needed_cpu_features(host: SandboxHost, identity: Identity) -> tuple[str, ...]:
    # What the captured processes could see and so may have chosen their code by; the host's kernel lists names of its
    # own besides, which change with its version and mean nothing to an image.
    sandbox, connection = start_cold(host)
    try:
        return tuple(sorted(identity.cpu_features & set(run(connection, probe.cpu_features))))
    finally:
        host.discard(sandbox)
