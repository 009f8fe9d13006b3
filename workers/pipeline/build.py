"""Making a generation, from a flavor's folder to the switched link."""

import contextlib
import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from readie.generations.disk import (
    CURRENT,
    Generation,
    GenerationError,
    current_generation,
    generation_folders,
    generations_folder,
    load_generation,
    verify,
)
from readie.generations.models import ExpectedStart
from readie.generations.publish import building_in, switch
from readie.protocol.catalogue import Catalogue, Checkpoint
from readie.settings import FlavorSettings
from workers.executor.wire import WIRE_VERSION
from workers.generation import Identity, check, host_cpu_features
from workers.pipeline.corpus import Corpus
from workers.pipeline.demand import Demand, expected
from workers.pipeline.filesystem import Built, build_filesystem
from workers.pipeline.flavor import Flavor, FlavorError
from workers.pipeline.installed import Installed
from workers.pipeline.plan import Limits, plan
from workers.pipeline.progress import Progress
from workers.pipeline.runs import KnownRuns
from workers.pipeline.survey import Calibration, Survey, calibrate, names_of, survey
from workers.pipeline.write import Ingredients, write_generation
from workers.sandbox.host import SandboxHost
from workers.sandbox.network.gateway import Gateway
from workers.sandbox.runsc import RunscOptions
from workers.sandbox.shape import sandbox_shape

logger = logging.getLogger(__name__)

PLATFORM: Final = RunscOptions.platform

_RUN_DIR: Final = Path("/run/readie")
_FORMAT: Final = 2
"""Raised when generations are made in another way from the same inputs."""
_LEAST_GAIN: Final = 0.01
"""A plan that is better than what is there by a smaller share is not worth a build: predictions are not that exact."""


@dataclass(frozen=True)
class Order:
    """What a generation is made for."""

    corpus: Corpus | None
    """``None``: the flavor fixes what the checkpoints import."""
    limits: Limits
    only_if_better: bool = False
    """Keep the current generation unless the new plan is better for ``corpus``."""


@dataclass(frozen=True)
class Made:
    """The generation that ``current`` now leads to."""

    generation: Generation
    reused: bool
    """Whether it was there already."""
    expected: ExpectedStart | None
    """Over the corpus it was ordered for."""


def make_generation(flavor: Flavor, order: Order, settings: FlavorSettings, runsc: Path, progress: Progress) -> Made:
    """Make a generation of ``flavor`` and switch to it, or to one made earlier from the very same inputs.

    Raises ``FlavorError``, ``CaptureError``, ``BusyError``, ``SandboxFailedError``, ``RunscError``,
    ``NetworkUnavailableError`` or ``OSError``;
    ``current`` then leads to where it did before, and what was half done is removed, by the next run at the latest.
    """
    _check_gpu(flavor, settings)
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
        with contextlib.ExitStack() as stack:
            # What is captured is the operator's own choice: nothing needs to be kept from it.
            gateway = stack.enter_context(Gateway([])) if shape.network == "sandbox" else None
            host = stack.enter_context(
                SandboxHost(run_dir, runsc, built.filesystem, shape, platform=PLATFORM, gateway=gateway)
            )
            identity = _identity(host, built)
            generation = _find(folder, identity, _inputs_digest(identity, flavor, order))
            reused = generation is not None
            if generation is None:
                generation = _build(folder, data, flavor, order, host, identity, progress)
                reused = generation.path == current_generation(data, flavor.name)
        if current_generation(data, flavor.name) != generation.path:
            switch(folder / CURRENT, generation.path.name)
    return Made(generation, reused, expected(generation.catalogue, order.corpus) if order.corpus else None)


def _check_gpu(flavor: Flavor, settings: FlavorSettings) -> None:
    given = settings.sandbox_gpu != "none"
    if flavor.gpu != given:
        wanted = "gives its sandboxes GPUs" if flavor.gpu else "gives its sandboxes no GPU"
        raise FlavorError(
            f"flavor {flavor.name!r} {wanted} (gpu in flavor.toml), but SANDBOX_GPU is {settings.sandbox_gpu!r}; "
            "change one of them"
        )


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


def _inputs_digest(identity: Identity, flavor: Flavor, order: Order) -> str:
    inputs = {
        "format": _FORMAT,
        "runsc_version": identity.runsc_version,
        "fingerprint": identity.fingerprint,
        "filesystem_digest": identity.filesystem_digest,
        "platform": identity.platform,
        "wire_version": identity.wire_version,
        "plan": [order.corpus.digest, asdict(order.limits)] if order.corpus else flavor.plan,
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def _find(folder: Path, identity: Identity, inputs: str) -> Generation | None:
    """Return the newest generation that was made from ``inputs``, fits this machine and is whole."""
    for path in generation_folders(folder):
        try:
            generation = load_generation(path.resolve())
        except GenerationError as error:
            logger.warning("%s", error)
            continue
        if generation.manifest.inputs_digest != inputs or check(generation, identity):
            continue
        if problems := verify(generation):
            logger.warning("%s is damaged and not used: %s", path.name, "; ".join(problems))
            continue
        return generation
    return None


def _build(  # noqa: PLR0917
    folder: Path, data: Path, flavor: Flavor, order: Order, host: SandboxHost, identity: Identity, progress: Progress
) -> Generation:
    installed = Installed(host.filesystem.packages)
    known = KnownRuns(data / "measurements" / f"{flavor.name}.json", installed, identity.runsc_version)
    wanted = names_of(order.corpus) if order.corpus else frozenset(name for names in flavor.plan for name in names)
    try:
        found = survey(host, installed, known, wanted, progress)
    finally:
        known.save()
    sets: Sequence[Sequence[str]] = flavor.plan
    if order.corpus is not None:
        current = _current(data, flavor, identity)
        sets, keep = _plan(order, host, found, current, progress)
        if keep and current is not None:
            return current
    ingredients = Ingredients(
        flavor=flavor,
        sets=sets,
        most=order.limits.checkpoints,
        survey=found,
        corpus=order.corpus,
        identity=identity,
        inputs_digest=_inputs_digest(identity, flavor, order),
    )
    return write_generation(folder, ingredients, host, progress)


def _plan(
    order: Order, host: SandboxHost, found: Survey, current: Generation | None, progress: Progress
) -> tuple[list[tuple[str, ...]], bool]:
    """Return what to capture, and whether the current generation is as good."""
    assert order.corpus is not None
    demand = Demand(found.modules, order.corpus)
    calibrated = calibrate(host, demand, found.unfit, progress)
    planned = plan(
        demand,
        calibrated.cost,
        empty_megabytes=calibrated.empty_megabytes,
        limits=order.limits,
        unfit=found.unfit,
    )
    progress.say(
        f"planned {len(planned.sets)} checkpoints for {len(order.corpus.sets)} import sets of {order.corpus.source}: "
        f"mean predicted start {planned.mean_seconds:.3f} s, cold {demand.mean_cold(calibrated.cost):.3f} s"
    )
    as_good = False
    if current is not None:
        today = expected(_in_terms_of(found, calibrated, current.catalogue), order.corpus).planned_seconds
        as_good = order.only_if_better and planned.mean_seconds > today * (1 - _LEAST_GAIN)
        verdict = "; that is as good, so nothing is built" if as_good else ""
        progress.say(f"today's generation {current.manifest.generation}: {today:.3f} s{verdict}")
    return [planned_set.names for planned_set in planned.sets], as_good


def _in_terms_of(found: Survey, calibrated: Calibration, catalogue: Catalogue) -> Catalogue:
    """Return ``catalogue`` with costs and sizes as a plan has them, so that only the choice of modules differs."""

    def megabytes(checkpoint: Checkpoint) -> float:
        held = found.modules.keys() & set(checkpoint.holds)
        return calibrated.empty_megabytes + sum(found.modules[name].megabytes for name in held)

    checkpoints = tuple(
        checkpoint.model_copy(update={"megabytes": megabytes(checkpoint)}) for checkpoint in catalogue.checkpoints
    )
    return catalogue.model_copy(update={"modules": found.modules, "cost": calibrated.cost, "checkpoints": checkpoints})


def _current(data: Path, flavor: Flavor, identity: Identity) -> Generation | None:
    """Return the current generation if a worker on this machine can use it."""
    path = current_generation(data, flavor.name)
    if path is None:
        return None
    try:
        generation = load_generation(path)
    except GenerationError:
        return None
    return None if check(generation, identity) else generation
