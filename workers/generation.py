"""A generation on disk: reading it, and whether this worker may restore its checkpoints.

::

    generations/<flavor>/current -> <generation id>        replaced in one step
    generations/<flavor>/<generation id>/
        manifest.json                                      Manifest
        catalogue.json                                     readie.protocol.catalogue.Catalogue
        checkpoints/checkpoint_N/                          meta.json (CheckpointMeta) and gVisor's image files
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, TypeVar

from pydantic import Field, ValidationError

from readie.protocol.call import Message
from readie.protocol.catalogue import Catalogue

MANIFEST: Final = "manifest.json"
CATALOGUE: Final = "catalogue.json"
CHECKPOINTS: Final = "checkpoints"
META: Final = "meta.json"
CURRENT: Final = "current"

ModelT = TypeVar("ModelT", bound=Message)

_BUILD_AGAIN = "run `make generation` on this machine"


class GenerationError(Exception):
    """A generation as a whole can't be used; the text names the file and what is wrong with it."""


class Manifest(Message):
    """What holds for every checkpoint of a generation."""

    version: Literal[1] = 1
    generation: str
    flavor: str
    created_at: datetime
    runsc_version: str
    fingerprint: str
    """SHA-256 of the sandbox shape, hexadecimal."""
    command: tuple[str, ...]
    """What the sandbox runs."""
    wire_version: int
    """Version of the protocol between worker and executor."""
    python_path: str
    """Python inside the sandbox."""
    python: str
    """``major.minor`` of that Python."""
    overlay: str
    network: str
    gpu: str
    platform: str
    """runsc's platform at capture."""
    filesystem_digest: str
    cpu_features: tuple[str, ...]
    """Features that the captured processes saw, as named in ``/proc/cpuinfo``."""
    checkpoints: tuple[str, ...]
    inputs_digest: str
    """SHA-256 over all that this generation was made from: the same inputs need no other generation."""


class ImageFile(Message):
    """One file of a saved sandbox."""

    size_bytes: int = Field(ge=0)
    sha256: str


class CheckpointMeta(Message):
    """What one checkpoint is and holds."""

    checkpoint_id: str
    runsc_version: str
    fingerprint: str
    filesystem_digest: str
    imports: tuple[str, ...]
    datasets: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    tokenizers: tuple[str, ...] = ()
    files: dict[str, ImageFile]
    """gVisor's image files beside this one."""


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


@dataclass(frozen=True)
class Identity:
    """What decides whether this process's sandboxes can continue a snapshot; the fields are those of ``Manifest``."""

    runsc_version: str
    fingerprint: str
    filesystem_digest: str
    python: str
    cpu_features: frozenset[str]
    platform: str
    wire_version: int


@dataclass(frozen=True)
class Mismatch:
    """A difference between a generation and a worker."""

    field: str
    generation_value: str
    worker_value: str
    fix: str

    def __str__(self) -> str:
        """Return one line for a log."""
        return f"{self.field}: the generation has {self.generation_value}, this worker {self.worker_value}; {self.fix}"


@dataclass(frozen=True)
class Decision:
    """What a worker does with a generation, and what it says about it."""

    keep: bool
    level: int
    """A level of ``logging``."""
    messages: tuple[str, ...]


def generations_folder(data: Path, flavor: str) -> Path:
    """Return where the generations of ``flavor`` lie."""
    return data / "generations" / flavor


def current_generation(data: Path, flavor: str) -> Path | None:
    """Return the folder that ``current`` points to, resolved; ``None`` when there is no generation yet."""
    link = generations_folder(data, flavor) / CURRENT
    return link.resolve() if link.is_dir() else None


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


def check(generation: Generation, own: Identity) -> list[Mismatch]:
    """Compare what a generation was captured with and what this worker has; empty when they fit."""
    manifest = generation.manifest
    settings = f"SANDBOX_NETWORK={manifest.network} SANDBOX_OVERLAY={manifest.overlay} SANDBOX_GPU={manifest.gpu}"
    fixes = {
        "runsc_version": f"start the worker with runsc {manifest.runsc_version} (READIE_RUNSC), or {_BUILD_AGAIN}",
        "fingerprint": f"start the worker with {settings} as at capture, or {_BUILD_AGAIN}",
        "filesystem_digest": f"use the flavor's filesystem that was built with this generation, or {_BUILD_AGAIN}",
        "python": f"start the worker with Python {manifest.python}, or {_BUILD_AGAIN}",
        "platform": f"start the worker with runsc's platform {manifest.platform}, or {_BUILD_AGAIN}",
        "wire_version": f"use the release of readie that captured this generation, or {_BUILD_AGAIN}",
    }
    mismatches = [
        Mismatch(field, str(getattr(manifest, field)), str(getattr(own, field)), fix)
        for field, fix in fixes.items()
        if getattr(manifest, field) != getattr(own, field)
    ]
    if missing := sorted(set(manifest.cpu_features) - own.cpu_features):
        fix = f"run the worker on a CPU that has them, or {_BUILD_AGAIN}"
        mismatches.append(Mismatch("cpu_features", " ".join(missing), "none of these", fix))
    return mismatches


def decide(mismatches: list[Mismatch], *, strict: bool) -> Decision:
    """Say whether a worker keeps a generation's checkpoints: with a mismatch only when it is not ``strict``."""
    if not mismatches:
        return Decision(keep=True, level=logging.INFO, messages=())
    lines = [str(mismatch) for mismatch in mismatches]
    if strict:
        lines.append("all checkpoints are dropped, every call starts cold (CHECKPOINT_STRICT_COMPAT=false keeps them)")
        return Decision(keep=False, level=logging.ERROR, messages=tuple(lines))
    lines.append("checkpoints are kept (CHECKPOINT_STRICT_COMPAT=false); restores that fail become cold starts")
    return Decision(keep=True, level=logging.WARNING, messages=tuple(lines))


def host_cpu_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Return the names in the ``flags`` line of this machine's first CPU."""
    for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return frozenset()


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
