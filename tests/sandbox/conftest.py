"""A filesystem, a place for sandboxes and two snapshots, made once for all tests of this folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from readie.pickling import dump_call, load_value
from workers.sandbox.connection import ExecutorConnection
from workers.sandbox.filesystem import Filesystem, copy_executor, write_filesystem
from workers.sandbox.host import SandboxHost
from workers.sandbox.runsc import find_runsc
from workers.sandbox.sandbox import Sandbox

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ("cloudpickle==3.1.3", "cryptography==50.0.2", "numpy==2.4.6")
SECONDS = 60.0
"""Bounds every wait of these tests; none of them is meant to come near it."""

GENERATORS = '''
"""A module of a flavor that makes generators of random numbers when it is imported."""
import random
import ssl
import numpy
import readie
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

ssl.RAND_bytes(8)  # from here on OpenSSL has a state, its own and that of cryptography
X25519PrivateKey.generate()

plain = random.Random(7)
generator = numpy.random.default_rng(7)
bit_generator = numpy.random.Philox(7)
seed_sequence = numpy.random.SeedSequence(7)
legacy = numpy.random.RandomState(7)
legacy.randn()  # the second of a pair of normal numbers is kept inside
hooks = []
made_by_hook = {}

@readie.before_snapshot
def before_snapshot():
    hooks.append("before_snapshot")
    made_by_hook["random"] = random.Random(7)
    made_by_hook["numpy"] = numpy.random.default_rng(7)

@readie.after_restore
def after_restore(): hooks.append("after_restore")
'''

UNLICENSED = """
import readie

@readie.after_restore
def after_restore(): raise OSError("no license file")
"""

RunCall = Callable[..., Any]


@pytest.fixture(scope="session")
def filesystem() -> Filesystem:
    """A flavor with cloudpickle, numpy and ``generators``; its packages are kept from run to run."""
    folder = ROOT / ".cache" / "test-flavor"
    key = hashlib.sha256(repr((REQUIREMENTS, sys.version)).encode()).hexdigest()
    packages, key_file = folder / "packages", folder / "key"
    if not key_file.exists() or key_file.read_text() != key:
        shutil.rmtree(folder, ignore_errors=True)
        installer = ["uv", "pip", "install", "--quiet", "--compile-bytecode", "--python", sys.executable]
        beside = Path(sys.executable).with_name("uv")
        if beside.exists():
            installer[0] = str(beside)
        subprocess.run([*installer, "--target", str(packages), *REQUIREMENTS], check=True, timeout=300)
        key_file.write_text(key)
    (packages / "generators.py").write_text(GENERATORS)
    (packages / "unlicensed.py").write_text(UNLICENSED)
    shutil.rmtree(folder / "executor", ignore_errors=True)
    copy_executor(folder / "executor")
    return write_filesystem(
        folder,
        python=Path(sys.executable).resolve(),
        prefix=Path(sys.base_prefix),
        digest=key,
        python_version=".".join(platform.python_version_tuple()[:2]),
    )


@pytest.fixture(scope="session")
def run_dir() -> Iterator[Path]:
    """A folder for hosts' run folders, short enough for runsc's sockets; must be empty in the end."""
    folder = Path(f"/run/readie-test-{os.getpid()}")
    folder.mkdir()
    yield folder
    left = list(folder.iterdir())
    shutil.rmtree(folder)
    assert left == []


@pytest.fixture(scope="session")
def host(filesystem: Filesystem, run_dir: Path) -> Iterator[SandboxHost]:
    """A host that keeps no sandbox ready, so that a test sees its own alone."""
    with SandboxHost(run_dir / "host", find_runsc(), filesystem) as host:
        yield host


@pytest.fixture
def sandbox(host: SandboxHost) -> Iterator[Sandbox]:
    """A created sandbox."""
    sandbox = host.take()
    yield sandbox
    host.discard(sandbox)


@pytest.fixture(scope="session")
def images(host: SandboxHost, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two snapshots: ``empty`` and ``numpy``, the latter with ``generators`` and what clones share."""
    folder = tmp_path_factory.mktemp("images")
    sets = {"empty": [], "numpy": ["numpy", "ssl", "uuid", "tempfile", "multiprocessing", "generators"]}
    for name, modules in sets.items():
        sandbox = host.take()
        with contextlib.ExitStack() as stack:
            stack.callback(host.discard, sandbox)
            sandbox.start(timeout=SECONDS, imports=modules)
            report = sandbox.wait_imported(timeout=SECONDS)
            assert report.failed == {}
            sandbox.checkpoint(folder / name, timeout=SECONDS)
    return folder


@pytest.fixture(scope="session")
def run_call() -> RunCall:
    """Run a function in a sandbox and return its value."""

    def run(connection: ExecutorConnection, function: Callable[..., Any], *arguments: Any) -> Any:
        result = connection.call("c1", function.__name__, [dump_call(function, arguments, {})], timeout=SECONDS)
        assert result.error is None, result.error.traceback
        return load_value(bytearray(result.value))

    return run
