"""How long a call waits for its sandbox: every way to start, by what the function imports.

All ways of one import set take turns in one run:

* ``process``: a fresh Python process on the host that imports the same, from the same files;
* ``cold``: in a sandbox that is created and started for the call, with no checkpoint;
* ``restored, none``: the checkpoint is restored in a sandbox that is created for the call;
* ``restored, created``: in a sandbox that was created before;
* ``ready``: the call meets a sandbox that was restored before;
* ``warm``: in an open session;
* ``bare``: ``runsc restore`` in a created sandbox and a connection to it, without anything of this product around.

All but the first and the last are measured at the client, from the submission to the value.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from readie.call import Call
from readie.generations.disk import current_generation, load_generation
from readie.remote_function import RemoteFunction
from readie.settings import FlavorSettings
from workers.executor import control
from workers.pipeline.filesystem import flavor_folder
from workers.sandbox.filesystem import Filesystem, read_filesystem
from workers.sandbox.host import SandboxHost
from workers.sandbox.runsc import RunscOptions, find_runsc
from workers.sandbox.sandbox import Sandbox

from .cluster import Cluster, calm_down, cluster
from .results import Check, Ratio, Section, Table
from .sampling import percentile, ratio_of_medians

WAYS = ("process", "cold", "restored, none", "restored, created", "ready", "warm", "bare")
CALL_WAYS = WAYS[1:-1]
_SECONDS = 120
_TAIL = ("serialize", "queue", "route", "deliver", "sandbox", "start", "connect", "load", "execute", "dump", "store")
PHASES = (*_TAIL, "return")


def none() -> int:
    """Need nothing."""
    return 1


def numpy() -> float:
    """Need numpy."""
    import numpy as np

    return float(np.ones(3).sum())


def pandas() -> float:
    """Need pandas."""
    import pandas as pd

    return float(pd.Series([1.0, 2.0]).mean())


def sklearn() -> int:
    """Need scikit-learn."""
    from sklearn.ensemble import RandomForestClassifier

    return int(RandomForestClassifier(n_estimators=3).n_estimators)


def matplotlib() -> str:
    """Need matplotlib."""
    import matplotlib.pyplot as plt

    return str(plt.get_backend())


def torch() -> float:
    """Need torch."""
    import torch

    return float(torch.ones(3).sum())


@dataclass(frozen=True)
class ImportSet:
    """A function, and what it imports as a script would."""

    function: Callable[[], object]
    statement: str
    created_limit: float | None = None
    """Least ratio of a cold start to a restored one with a created sandbox."""
    ready_limit: float | None = None
    """Least ratio of a cold start to one that meets a ready sandbox."""


IMPORT_SETS = {
    "none": ImportSet(none, "pass"),
    "numpy": ImportSet(numpy, "import numpy"),
    "pandas": ImportSet(pandas, "import pandas", 8, 50),
    "scikit-learn": ImportSet(sklearn, "from sklearn.ensemble import RandomForestClassifier", 15, 150),
    "matplotlib": ImportSet(matplotlib, "import matplotlib.pyplot"),
    "torch": ImportSet(torch, "import torch", 12, 150),
}


@dataclass
class _Samples:
    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    phases: defaultdict[str, list[dict[str, float]]] = field(default_factory=lambda: defaultdict(list))


def bare_restore(host: SandboxHost, sandbox: Sandbox, image: Path) -> float:
    """Return the seconds of ``runsc restore`` and a connection; discards the sandbox."""
    folder = sandbox.folder
    options = RunscOptions(folder / "state", folder / "runsc.log", folder / "panic.log")
    flags = ["--detach", f"--bundle={folder}", f"--image-path={image}"]
    command = [str(find_runsc()), *options.args(), "restore", *flags, sandbox.id]
    (sandbox.control_dir / control.GO).write_text("restored")
    began = time.perf_counter()
    # Without a timeout: with one, Popen looks at the process only every now and then.
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        if process.wait() != 0:
            raise RuntimeError(f"runsc restore failed: {options.log.read_text()}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        while connection.connect_ex(str(sandbox.control_dir / control.SOCKET)) != 0:
            time.sleep(0.0002)
        connection.recv(1)
    seconds = time.perf_counter() - began
    host.discard(sandbox)
    return seconds


class _Benchmark:
    """Three clusters of one worker each, which differ in what is made ahead, and a host for bare restores."""

    def __init__(
        self, bare: Cluster, created: Cluster, ready: Cluster, host: SandboxHost, filesystem: Filesystem
    ) -> None:
        self._bare, self._created, self._ready = bare, created, ready
        self._host = host
        self._filesystem = filesystem
        settings = FlavorSettings()
        folder = current_generation(settings.data, settings.flavor)
        assert folder is not None, "no generation; run `make generation`"
        self._images = load_generation(folder).checkpoints

    def measure(self, one: ImportSet, rounds: int) -> tuple[_Samples, str]:
        """Return the samples of one import set and the checkpoint that its calls restore."""
        samples = _Samples()
        restored = self._bare.remote(one.function)
        checkpoint = self._call(restored).report().checkpoint_id
        if checkpoint is None:
            raise RuntimeError("no checkpoint is restored: run `make generation`")
        # A router would also take a larger one that is ready by chance.
        ready = self._ready.remote(one.function, {"checkpoint_id": checkpoint})
        functions: dict[str, tuple[Cluster, RemoteFunction[[], object]]] = {
            "cold": (self._bare, self._bare.remote(one.function, {"disable_optimized_execution": True})),
            "restored, none": (self._bare, restored),
            "restored, created": (self._created, self._created.remote(one.function)),
            "ready": (self._ready, ready),
        }
        session = self._ready.session()
        warm = ready.options(session=session)
        self._call(warm)
        for _ in range(5):  # so that it is in demand
            self._call(ready)
        self._call(functions["restored, created"][1])
        image = self._images[checkpoint]
        for _ in range(rounds):
            calm_down()
            samples.seconds["process"].append(self._process(one.statement))
            for way, (where, function) in functions.items():
                where.settle(checkpoint if way == "ready" else None)
                self._sample(samples, way, function, checkpoint)
            calm_down()
            self._call(warm)  # the first one after a pause is slower
            self._sample(samples, "warm", warm, checkpoint)
            sandbox = self._host.take()
            calm_down()
            samples.seconds["bare"].append(bare_restore(self._host, sandbox, image))
        session.close()
        return samples, checkpoint

    def _call(self, function: RemoteFunction[[], object]) -> Call[object]:
        call = function.spawn()
        call.result(_SECONDS)
        return call

    def _sample(self, samples: _Samples, way: str, function: RemoteFunction[[], object], checkpoint: str) -> None:
        began = time.perf_counter()
        call = self._call(function)
        seconds = time.perf_counter() - began
        report = call.report()
        met = report.start, report.pool, report.checkpoint_id
        if met != _expected(way, checkpoint):
            raise RuntimeError(f"{way}: the call met {met}: {report.reason}, {report.fallback}")
        samples.seconds[way].append(seconds)
        samples.phases[way].append(dict(report.phases))

    def _process(self, statement: str) -> float:
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(self._filesystem.packages)}
        began = time.perf_counter()
        subprocess.run([self._filesystem.python, "-S", "-s", "-c", statement], env=environment, check=True)
        return time.perf_counter() - began


def _expected(way: str, checkpoint: str) -> tuple[str, str | None, str | None]:
    return {
        "cold": ("cold", "none", None),
        "restored, none": ("restored", "none", checkpoint),
        "restored, created": ("restored", "created", checkpoint),
        "ready": ("restored", "ready", checkpoint),
        "warm": ("warm", None, checkpoint),
    }[way]


@contextlib.contextmanager
def _benchmark() -> Iterator[_Benchmark]:
    settings = FlavorSettings()
    folder = current_generation(settings.data, settings.flavor)
    assert folder is not None, "no generation; run `make generation`"
    manifest = load_generation(folder).manifest
    filesystem = read_filesystem(flavor_folder(settings.data, settings.flavor) / manifest.filesystem_digest)
    nothing_ready = {"READIE_READY_MEMORY_BYTES": "0"}
    run = Path(f"/run/readie/benchmark-{os.getpid()}-{uuid.uuid4().hex[:4]}")
    with (
        cluster(settings=nothing_ready | {"READIE_CREATED_SANDBOXES": "0"}) as bare,
        cluster(settings=nothing_ready) as created,
        cluster() as ready,
        SandboxHost(run, find_runsc(settings.runsc), filesystem) as host,
    ):
        yield _Benchmark(bare, created, ready, host, filesystem)


def run(names: list[str], *, rounds: int) -> Iterator[Section]:
    """Measure import sets one after the other."""
    with _benchmark() as benchmark:
        for name in names:
            section = Section(
                f"start-{name}", f"Start of a call that imports {name}", {"rounds": rounds, "import_set": name}
            )
            samples, checkpoint = benchmark.measure(IMPORT_SETS[name], rounds)
            _fill(section, IMPORT_SETS[name], samples, checkpoint)
            yield section


def _fill(section: Section, one: ImportSet, samples: _Samples, checkpoint: str) -> None:
    name = section.settings["import_set"]
    section.settings["checkpoint"] = checkpoint
    for way in WAYS:
        section.add({"way": way}, "s", samples.seconds[way])
    for way in CALL_WAYS:
        for phase in PHASES:
            section.add({"way": way, "phase": phase}, "s", [phases.get(phase, 0.0) for phases in samples.phases[way]])
    cold = samples.seconds["cold"]
    rows = []
    for way in WAYS:
        seconds = samples.seconds[way]
        ratio = ratio_of_medians(cold, seconds)
        rows.append(
            [
                way,
                1e3 * median(seconds),
                1e3 * percentile(seconds, 5),
                1e3 * percentile(seconds, 95),
                ratio.value,
                f"{ratio.low:.3g} to {ratio.high:.3g}",
            ]
        )
    section.tables.append(
        Table("From submission to value, milliseconds", ["way", "median", "p5", "p95", "cold / this", "95 %"], rows)
    )
    section.tables.append(
        Table(
            "Where the time goes, median milliseconds",
            ["phase", *CALL_WAYS],
            [
                [phase, *(1e3 * median(phases.get(phase, 0.0) for phases in samples.phases[way]) for way in CALL_WAYS)]
                for phase in PHASES
            ],
        )
    )
    for way, limit in (("restored, created", one.created_limit), ("ready", one.ready_limit)):
        ratio = ratio_of_medians(cold, samples.seconds[way])
        section.ratios[f"{name}: cold / {way}"] = Ratio(ratio.value, "higher")
        if limit is not None:
            section.checks.append(Check(f"{name}: cold / {way}", ratio.value, "at least", limit, ratio.low, ratio.high))
    if name == "none":
        ratio = ratio_of_medians(samples.seconds["ready"], samples.seconds["warm"])
        section.ratios[f"{name}: ready / warm"] = Ratio(ratio.value, "lower")
        section.checks.append(Check("none: ready / warm", ratio.value, "at most", 3, ratio.low, ratio.high))
