"""Reading generations."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError

from readie.errors import ReadieError
from readie.protocol.call import Message
from readie.protocol.catalogue import Catalogue

from .models import CheckpointMeta, Manifest, PlanRecord

MANIFEST: Final = "manifest.json"
CATALOGUE: Final = "catalogue.json"
PLAN: Final = "plan.json"
CHECKPOINTS: Final = "checkpoints"
META: Final = "meta.json"
CURRENT: Final = "current"

ModelT = TypeVar("ModelT", bound=Message)


class GenerationError(ReadieError):
    """A generation as a whole can't be used; the text names the file and what is wrong with it."""


@dataclass(frozen=True)
class Generation:
    """A generation whose checkpoints are there."""

    path: Path
    manifest: Manifest
    catalogue: Catalogue
    """Lists the usable checkpoints alone."""
    checkpoints: Mapping[str, Path]
    """Checkpoint id to the folder of its image."""
    dropped: Mapping[str, str]
    """Checkpoint id to why it can't be used."""


def generations_folder(data: Path, flavor: str) -> Path:
    """Return where the generations of ``flavor`` lie."""
    return data / "generations" / flavor


def current_generation(data: Path, flavor: str) -> Path | None:
    """Return the folder that ``current`` points to, resolved; ``None`` when there is no generation yet."""
    link = generations_folder(data, flavor) / CURRENT
    return link.resolve() if link.is_dir() else None


def generation_folders(folder: Path) -> list[Path]:
    """Return the folders of all published generations below ``folder``, the newest first."""
    found = [path.parent for path in folder.glob(f"*/{MANIFEST}")]
    return sorted((path for path in found if not path.is_symlink() and not path.name.startswith(".")), reverse=True)


def load_generation(folder: Path) -> Generation:
    """Read a generation. A checkpoint that is not whole drops itself alone; see ``Generation.dropped``.

    Raises ``GenerationError`` when the manifest or the catalogue can't be read, or they are of different generations.
    """
    manifest = _read(Manifest, folder / MANIFEST)
    catalogue = _read(Catalogue, folder / CATALOGUE)
    for field in ("generation", "flavor", "python", "filesystem_digest"):
        ours, theirs = getattr(manifest, field), getattr(catalogue, field)
        if ours != theirs:
            raise GenerationError(f"{folder}: {MANIFEST} says {field} {ours!r}, {CATALOGUE} says {theirs!r}")
    listed = {checkpoint.id for checkpoint in catalogue.checkpoints}
    checkpoints: dict[str, Path] = {}
    dropped: dict[str, str] = {}
    for checkpoint_id in manifest.checkpoints:
        image = folder / CHECKPOINTS / checkpoint_id
        problem = _problem(image, checkpoint_id, manifest)
        if problem is None and checkpoint_id not in listed:
            problem = f"{CATALOGUE} does not list it"
        if problem is None:
            checkpoints[checkpoint_id] = image
        else:
            dropped[checkpoint_id] = problem
    usable = tuple(checkpoint for checkpoint in catalogue.checkpoints if checkpoint.id in checkpoints)
    return Generation(
        path=folder,
        manifest=manifest,
        catalogue=catalogue.model_copy(update={"checkpoints": usable}),
        checkpoints=checkpoints,
        dropped=dropped,
    )


def read_meta(image: Path) -> CheckpointMeta:
    """Read the ``meta.json`` of one checkpoint's folder; ``GenerationError`` when it can't be."""
    return _read(CheckpointMeta, image / META)


def read_plan(folder: Path) -> PlanRecord:
    """Read how the generation in ``folder`` came about; ``GenerationError`` when that can't be read."""
    return _read(PlanRecord, folder / PLAN)


def verify(generation: Generation) -> list[str]:
    """Return what is wrong with the files of ``generation``, by content; empty when all is as it was written."""
    problems = [f"{checkpoint_id}: {reason}" for checkpoint_id, reason in generation.dropped.items()]
    for checkpoint_id, image in generation.checkpoints.items():
        for name, file in read_meta(image).files.items():
            if file_digest(image / name) != file.sha256:
                problems.append(f"{checkpoint_id}: the content of {name} has changed")
    return problems


def file_digest(path: Path) -> str:
    """Return the SHA-256, hexadecimal, of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read(model: type[ModelT], path: Path) -> ModelT:
    try:
        return model.model_validate_json(path.read_bytes())
    except OSError as error:
        raise GenerationError(f"{path} can't be read: {error.strerror or error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise GenerationError(f"{path} is not valid: {where + ': ' if where else ''}{first['msg']}") from error


def _problem(image: Path, checkpoint_id: str, manifest: Manifest) -> str | None:
    try:
        meta = read_meta(image)
    except GenerationError as error:
        return str(error)
    expected = {"checkpoint_id": checkpoint_id} | {
        field: getattr(manifest, field) for field in ("runsc_version", "fingerprint", "filesystem_digest")
    }
    for field, value in expected.items():
        if (found := getattr(meta, field)) != value:
            return f"{META} says {field} {found!r}, the manifest {value!r}"
    if not meta.files:
        return f"{META} lists no image files"
    for name, file in meta.files.items():
        try:
            size = (image / name).stat().st_size
        except OSError as error:
            return f"image file {name} can't be read: {error.strerror or error}"
        if size != file.size_bytes:
            return f"image file {name} has {size} bytes instead of {file.size_bytes}"
    return None
