"""What clones of one checkpoint must not share."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from readie.generations.disk import current_generation, load_generation
from workers.sandbox.filesystem import read_filesystem
from workers.sandbox.host import SandboxHost
from workers.sandbox.runsc import find_runsc

SECONDS = 60.0
CLONES = 8

pytestmark = pytest.mark.sandbox

# The sandboxes have no module of this name.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def draw_standard() -> dict[str, Any]:
    import multiprocessing
    import os
    import random
    import secrets
    import ssl
    import tempfile
    import uuid

    return {
        "random": random.random(),
        "gauss": random.gauss(0, 1),
        "ssl": ssl.RAND_bytes(8),
        "uuid1 node": uuid.uuid1().node,
        "uuid1 clock sequence and time": (uuid.uuid1().clock_seq, uuid.uuid1().time),
        "uuid4": uuid.uuid4(),
        "tempfile": next(tempfile._get_candidate_names()),  # type: ignore[attr-defined]
        "authkey": bytes(multiprocessing.current_process().authkey),
        "urandom": os.urandom(8),
        "secrets": secrets.token_hex(8),
    }


def draw_packages() -> dict[str, Any]:
    import generators  # type: ignore[import-not-found]
    import numpy

    return {
        "rand": float(numpy.random.rand()),
        "randn": float(numpy.random.randn()),
        "Random": generators.plain.random(),
        "default_rng": float(generators.generator.random()),
        "spawned": float(generators.generator.spawn(1)[0].random()),
        "Philox": int(generators.bit_generator.random_raw()),
        "RandomState": float(generators.legacy.randn()),
        "Random of a hook": generators.made_by_hook["random"].random(),
        "default_rng of a hook": float(generators.made_by_hook["numpy"].random()),
        "key of cryptography": generators.X25519PrivateKey.generate().private_bytes_raw(),
        "SeedSequence": float(numpy.random.default_rng(generators.seed_sequence).random()),
        "SeedSequence.spawn": float(numpy.random.default_rng(generators.seed_sequence.spawn(1)[0]).random()),
    }


@pytest.mark.parametrize(("image", "draws"), [("empty", [draw_standard]), ("numpy", [draw_standard, draw_packages])])
def test_no_two_clones_draw_the_same(
    host: SandboxHost, images: Path, run_call: Callable[..., Any], image: str, draws: list[Callable[[], dict[str, Any]]]
) -> None:
    drawn: list[dict[str, Any]] = []
    for _ in range(CLONES):
        sandbox = host.take()
        sandbox.restore(images / image, timeout=SECONDS)
        connection = sandbox.wait_ready(timeout=SECONDS)
        drawn.append({name: value for draw in draws for name, value in run_call(connection, draw).items()})
        host.discard(sandbox)

    equal = [name for name in drawn[0] if len({str(values[name]) for values in drawn}) < CLONES]
    assert equal == []


def draw_loaded() -> dict[str, Any]:
    """Draw from what the checkpoint has loaded: a package that is imported now would begin with new entropy."""
    import sys

    drawn: dict[str, Any] = {}
    if numpy := sys.modules.get("numpy"):
        drawn["numpy.random"] = float(numpy.random.rand())
        drawn["numpy.random.default_rng"] = float(numpy.random.default_rng().random())
    if pandas := sys.modules.get("pandas"):
        drawn["pandas.sample"] = pandas.Series(range(1000)).sample(8).tolist()
    if "sklearn" in sys.modules:
        import sklearn.utils  # type: ignore[import-not-found]

        drawn["sklearn.shuffle"] = sklearn.utils.shuffle(list(range(100)))
    if torch := sys.modules.get("torch"):
        drawn["torch"] = torch.rand(1).item()
    return drawn


def look_at_what_is_shared() -> dict[str, Any]:
    import os
    import socket
    import sys

    return {
        "hash of a text": hash("readie"),
        "layout of the memory": id(sys.modules),
        "pid": os.getpid(),
        "host name": socket.gethostname(),
    }


def read_clocks() -> tuple[float, float]:
    import time

    return time.time(), time.monotonic()


def test_eight_clones_of_every_checkpoint_of_a_generation(
    data_folder: Path, run_dir: Path, run_call: Callable[..., Any]
) -> None:
    folder = current_generation(data_folder, "default")
    assert folder is not None
    generation = load_generation(folder)
    assert len(generation.checkpoints) > 1
    filesystem = read_filesystem(data_folder / "flavors" / "default" / generation.manifest.filesystem_digest)
    loaded = set()
    with SandboxHost(run_dir / "generation", find_runsc(), filesystem) as host:
        for checkpoint_id, image in generation.checkpoints.items():
            drawn, shared = [], []
            clocks = [(image.stat().st_mtime, float("-inf"))]
            for _ in range(CLONES):
                sandbox = host.take()
                sandbox.restore(image, timeout=SECONDS)
                connection = sandbox.wait_ready(timeout=SECONDS)
                shared.append(run_call(connection, look_at_what_is_shared))
                clocks.append(run_call(connection, read_clocks))
                drawn.append({**run_call(connection, draw_standard), **run_call(connection, draw_loaded)})
                host.discard(sandbox)

            loaded |= drawn[0].keys()
            equal = [name for name in drawn[0] if len({str(values[name]) for values in drawn}) < CLONES]
            assert equal == [], checkpoint_id
            assert shared == shared[:1] * CLONES, "docs/sandboxes.md says that clones share these"
            for before, after in itertools.pairwise(clocks):
                assert all(earlier < later for earlier, later in zip(before, after, strict=True)), checkpoint_id
    assert {"numpy.random", "pandas.sample", "sklearn.shuffle"} <= loaded


def test_hooks_of_the_flavors_modules_run_once_each(
    host: SandboxHost, images: Path, run_call: Callable[..., Any]
) -> None:
    sandbox = host.take()
    sandbox.restore(images / "numpy", timeout=SECONDS)

    def hooks() -> Any:
        import generators

        return generators.hooks

    assert run_call(sandbox.wait_ready(timeout=SECONDS), hooks) == ["before_snapshot", "after_restore"]
    host.discard(sandbox)
