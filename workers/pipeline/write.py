"""Capturing the planned images and writing the generation that they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final

from readie.generations.disk import (
    CATALOGUE,
    CHECKPOINTS,
    MANIFEST,
    META,
    PLAN,
    Generation,
    file_digest,
    load_generation,
)
from readie.generations.models import CheckpointMeta, ImageFile, Manifest, PlanRecord
from readie.generations.publish import publish, staging
from readie.protocol.call import Message
from readie.protocol.catalogue import Catalogue, Checkpoint
from workers.generation import Identity
from workers.pipeline import probe
from workers.pipeline.capture import run, start_cold, time_cold_starts
from workers.pipeline.corpus import Corpus
from workers.pipeline.cost import fit, restore_seconds
from workers.pipeline.demand import expected
from workers.pipeline.flavor import Flavor
from workers.pipeline.images import Image, Images
from workers.pipeline.progress import Progress
from workers.pipeline.survey import COLD_STARTS, Survey
from workers.sandbox.host import SandboxHost

RESTORES_PER_CHECKPOINT: Final = 7


@dataclass(frozen=True)
class Ingredients:
    """What a generation is written from."""

    flavor: Flavor
    sets: Sequence[Sequence[str]]
    """What the checkpoints import, without the empty one."""
    most: int
    """Checkpoints, without the empty one."""
    survey: Survey
    corpus: Corpus | None
    """That ``sets`` were planned for; ``None``: they are as the flavor says, and must all work."""
    identity: Identity
    inputs_digest: str


def write_generation(folder: Path, ingredients: Ingredients, host: SandboxHost, progress: Progress) -> Generation:
    """Capture the images and publish the generation in ``folder``, whole or not at all.

    Raises ``CaptureError``.
    """
    created_at = datetime.now(UTC).replace(microsecond=0)
    generation_id = f"{created_at:%Y%m%dT%H%M%S}-{ingredients.inputs_digest[:8]}"
    with staging(folder) as staged:
        taken = _capture(staged / CHECKPOINTS, ingredients, host, progress)
        for image in taken.images:
            _write(image.folder / META, _meta(image, host))
        catalogue = _catalogue(generation_id, ingredients, taken.images, host)
        _write(staged / CATALOGUE, catalogue)
        _write(staged / MANIFEST, _manifest(created_at, generation_id, ingredients, taken.images, host))
        _write(staged / PLAN, _record(ingredients, taken.notes, catalogue))
        publish(staged, folder / generation_id)
    return load_generation(folder / generation_id)


def _capture(checkpoints: Path, ingredients: Ingredients, host: SandboxHost, progress: Progress) -> Images:
    taken = Images(host, checkpoints)
    with progress.stage("capturing", 1 + len(ingredients.sets)) as advance:
        advance(taken.take([]).checkpoint_id)
        if ingredients.corpus is None:
            for imports in ingredients.sets:
                advance(taken.take(imports).checkpoint_id)
        else:
            taken.take_what_works(ingredients.sets, 1 + ingredients.most, advance)
    more = RESTORES_PER_CHECKPOINT - len(taken.images[0].restores)
    with progress.stage("restoring", len(taken.images) * more) as advance:
        # In turn, so that what else the machine does for a while burdens all of them alike.
        for _ in range(more):
            for image in taken.images:
                image.restore_again(host)
                advance(image.checkpoint_id)
    return taken


def _catalogue(generation_id: str, ingredients: Ingredients, images: Sequence[Image], host: SandboxHost) -> Catalogue:
    modules = ingredients.survey.modules
    measured = [(image.report.anonymous_mb, median(taken.seconds for taken in image.restores)) for image in images]
    cost = fit(measured, time_cold_starts(host, COLD_STARTS))
    return Catalogue(
        generation=generation_id,
        flavor=ingredients.flavor.name,
        python=ingredients.identity.python,
        filesystem_digest=ingredients.identity.filesystem_digest,
        cost=cost,
        modules=modules,
        checkpoints=tuple(
            Checkpoint(
                id=image.checkpoint_id,
                imported=image.imports,
                holds=tuple(sorted(modules.keys() & set(image.report.loaded))),
                megabytes=megabytes,
                restore_seconds=seconds,
                residual_seconds=seconds - restore_seconds(cost, megabytes),
            )
            for image, (megabytes, seconds) in zip(images, measured, strict=True)
        ),
    )


def _manifest(
    created_at: datetime, generation_id: str, ingredients: Ingredients, images: Sequence[Image], host: SandboxHost
) -> Manifest:
    identity = ingredients.identity
    return Manifest(
        generation=generation_id,
        flavor=ingredients.flavor.name,
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
        checkpoints=tuple(image.checkpoint_id for image in images),
        inputs_digest=ingredients.inputs_digest,
    )


def _record(ingredients: Ingredients, notes: Sequence[str], catalogue: Catalogue) -> PlanRecord:
    corpus = ingredients.corpus
    return PlanRecord(
        corpus=corpus.source if corpus else None,
        import_sets=len(corpus.sets) if corpus else 0,
        expected=expected(catalogue, corpus) if corpus else None,
        unimportable=ingredients.survey.unimportable,
        unfit=ingredients.survey.unfit,
        notes=tuple(notes),
    )


def _meta(image: Image, host: SandboxHost) -> CheckpointMeta:
    return CheckpointMeta(
        checkpoint_id=image.checkpoint_id,
        runsc_version=host.runsc_version,
        fingerprint=host.fingerprint,
        filesystem_digest=host.filesystem.digest,
        imports=image.imports,
        files={
            file.name: ImageFile(size_bytes=file.stat().st_size, sha256=file_digest(file))
            for file in sorted(image.folder.iterdir())
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


def _write(path: Path, message: Message) -> None:
    path.write_text(message.model_dump_json(indent=2) + "\n")
