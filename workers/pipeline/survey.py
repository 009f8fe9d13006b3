"""What a plan is made from: the flavor's modules as measured, and what starts cost on this machine."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from readie.protocol.catalogue import Cost, Module
from workers.pipeline.attribution import attribute
from workers.pipeline.capture import CaptureError, capture, restore, time_cold_starts
from workers.pipeline.corpus import Corpus
from workers.pipeline.cost import fit
from workers.pipeline.demand import Demand, resolve
from workers.pipeline.installed import Installed
from workers.pipeline.measure import Measurer, by_top_level
from workers.pipeline.progress import Progress
from workers.pipeline.runs import KnownRuns, whole
from workers.sandbox.host import SandboxHost

COLD_STARTS: Final = 5
_TRIAL_RESTORES: Final = 5
_TRIAL_IMAGES: Final = 3
"""Sets that are tried for a large image before it is given up."""


@dataclass(frozen=True)
class Survey:
    """The modules of a flavor as measured."""

    modules: dict[str, Module]
    unimportable: dict[str, str]
    """Each with the reason."""
    unfit: dict[str, str]
    """Modules that leave threads running or sockets open, each with what."""


@dataclass(frozen=True)
class Calibration:
    """What starts cost here, from two images that are not kept."""

    cost: Cost
    empty_megabytes: float


def survey(
    host: SandboxHost, installed: Installed, known: KnownRuns, wanted: frozenset[str], progress: Progress
) -> Survey:
    """Measure the public modules of the flavor, and those that ``wanted`` names besides."""
    names = installed.public_modules()
    names |= {name for hint in wanted if (name := resolve(hint, dict.fromkeys(installed.modules))) is not None}
    with progress.stage("measuring imports", len(by_top_level(names))) as advance, Measurer(host, known) as measurer:
        runs = measurer.measure(names, advance)
    loads = whole(runs)
    return Survey(
        modules=attribute(runs, loads),
        unimportable={name: run.error for name, run in runs.items() if run.error is not None},
        unfit={name: all_of_it.unfit for name, all_of_it in loads.items() if all_of_it.unfit is not None},
    )


def calibrate(host: SandboxHost, demand: Demand, unfit: Mapping[str, str], progress: Progress) -> Calibration:
    """Time cold starts, and restores of the empty image and of one that holds what some call of ``demand`` needs.

    Raises ``CaptureError`` when a sandbox does not start or the empty image can't be taken.
    """
    with progress.stage("timing starts", COLD_STARTS + 2 * _TRIAL_RESTORES) as advance, _folder() as folder:
        cold_seconds = []
        for _ in range(COLD_STARTS):
            cold_seconds += time_cold_starts(host, 1)
            advance("")
        empty = capture(host, [], folder / "empty").anonymous_mb
        images = {folder / "empty": empty, **_large_image(host, demand, unfit, folder)}
        seconds: dict[Path, list[float]] = {image: [] for image in images}
        for _ in range(_TRIAL_RESTORES):
            for image, taken in seconds.items():
                taken.append(restore(host, image).seconds)
                advance("")
    restores = [(megabytes, median(seconds[image])) for image, megabytes in images.items()]
    return Calibration(fit(restores, cold_seconds), empty)


def _large_image(host: SandboxHost, demand: Demand, unfit: Mapping[str, str], folder: Path) -> dict[Path, float]:
    calls = [call for call in demand.calls if call.names and not unfit.keys() & set(call.names)]
    calls.sort(key=lambda call: demand.megabytes(call.needs), reverse=True)
    for number, call in enumerate(calls[:_TRIAL_IMAGES]):
        image = folder / f"large-{number}"
        try:
            return {image: capture(host, call.names, image).anonymous_mb}
        except CaptureError:
            continue  # The plan's own sets are divided where they must be; this one only has to be large.
    return {}


@contextmanager
def _folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="readie-pipeline-") as folder:
        yield Path(folder)


def names_of(corpus: Corpus) -> frozenset[str]:
    """Return every name in a corpus."""
    return frozenset(name for found in corpus.sets for name in found.imports)
