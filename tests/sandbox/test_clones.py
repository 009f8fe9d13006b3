"""What clones of one checkpoint must not share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from workers.sandbox.host import SandboxHost

SECONDS = 60.0
CLONES = 8

pytestmark = pytest.mark.sandbox

# The sandboxes have no module of this name.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def draw_standard() -> dict[str, Any]:
    import multiprocessing
    import os
    import random
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
