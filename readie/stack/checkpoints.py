"""The checkpoints that live workers can restore, from the catalogues that they announce."""

from typing import cast

from pydantic import BaseModel, ValidationError
from redis import Redis

from readie.protocol import keys
from readie.protocol.catalogue import Catalogue

from .fleet import WorkerOverview, workers_overview


class CheckpointOverview(BaseModel):
    """One checkpoint of a generation, over all workers that serve it."""

    id: str
    imported: tuple[str, ...]
    holds: tuple[str, ...]
    """All catalogued modules in it."""
    megabytes: float
    restore_seconds: float
    """Predicted, as routers do: from the size."""
    measured_seconds: float
    """Median when it was captured."""
    ready: dict[str, int]
    """Restored sandboxes that wait for a call, by worker."""
    lacking: tuple[str, ...]
    """Workers that could not take it up."""
    avoided: tuple[str, ...]
    """Workers on which it is not tried now, because its restores failed."""


class GenerationOverview(BaseModel):
    """What some workers serve."""

    flavor: str
    generation: str | None
    """``None``: these workers have no usable generation, and start every call cold."""
    python: str
    runsc_version: str
    workers: tuple[str, ...]
    catalogue_missing: bool = False
    """The catalogue is not in Redis: routers know nothing of the checkpoints, and start every call cold."""
    checkpoints: tuple[CheckpointOverview, ...] = ()


def look_at_checkpoints(connection: Redis) -> tuple[GenerationOverview, ...]:
    """Return what the live workers serve, by flavor and generation."""
    groups: dict[tuple[str, str, str, str, str], list[WorkerOverview]] = {}
    for worker in workers_overview(connection):
        same = (worker.flavor, worker.generation or "", worker.catalogue or "", worker.python, worker.runsc_version)
        groups.setdefault(same, []).append(worker)
    return tuple(_generation(workers, _catalogue(connection, workers[0])) for _, workers in sorted(groups.items()))


def _catalogue(connection: Redis, worker: WorkerOverview) -> Catalogue | None:
    text = cast("bytes | None", connection.get(keys.catalogue(worker.catalogue))) if worker.catalogue else None
    try:
        return Catalogue.model_validate_json(text) if text else None
    except ValidationError:
        return None


def _generation(workers: list[WorkerOverview], catalogue: Catalogue | None) -> GenerationOverview:
    first = workers[0]
    return GenerationOverview(
        flavor=first.flavor,
        generation=first.generation,
        python=first.python,
        runsc_version=first.runsc_version,
        workers=tuple(worker.name for worker in workers),
        catalogue_missing=first.catalogue is not None and catalogue is None,
        checkpoints=tuple(
            CheckpointOverview(
                id=one.id,
                imported=one.imported,
                holds=one.holds,
                megabytes=one.megabytes,
                restore_seconds=catalogue.cost.restore_base_seconds
                + catalogue.cost.restore_seconds_per_megabyte * one.megabytes,
                measured_seconds=one.restore_seconds,
                ready={worker.name: worker.ready[one.id] for worker in workers if one.id in worker.ready},
                lacking=tuple(worker.name for worker in workers if one.id not in worker.checkpoints),
                avoided=tuple(worker.name for worker in workers if one.id in worker.avoided),
            )
            for one in catalogue.checkpoints
        )
        if catalogue
        else (),
    )
