"""A small flavor, and one generation of it that is made once for all tests of this folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from readie.generations.disk import CATALOGUE, CHECKPOINTS, MANIFEST, META, PLAN, generations_folder
from readie.generations.models import CheckpointMeta, ImageFile, Manifest, PlanRecord
from readie.protocol.catalogue import Catalogue, Checkpoint, Cost, Module
from tests.conftest import ROOT
from workers.generation import Identity
from workers.sandbox.filesystem import read_filesystem
from workers.sandbox.host import SandboxHost
from workers.sandbox.runsc import find_runsc

FLAVORS = Path(__file__).parent / "flavors"
TIMEOUT_SECONDS = 240


@dataclass(frozen=True)
class Workbench:
    """A data folder and a copy of the flavors, which a test may change."""

    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def flavor(self) -> Path:
        return self.folder / "flavors" / "tiny"

    @property
    def generations(self) -> Path:
        return generations_folder(self.data, "tiny")

    def published(self) -> list[str]:
        """Return what somebody who looks for generations finds."""
        return sorted(entry.name for entry in self.generations.iterdir() if not entry.name.startswith("."))

    def plan_for(self, *sets: tuple[float, list[str]]) -> None:
        """Let the flavor's checkpoints be planned for these sets of imports and their weights."""
        self.plan()
        lines = (json.dumps({"weight": weight, "imports": imports}) for weight, imports in sets)
        (self.flavor / "corpus.jsonl").write_text("\n".join(lines))

    def plan(self, *sets: list[str]) -> None:
        """Let the flavor's checkpoints import these."""
        tables = "".join(f"[[checkpoint]]\nimports = {json.dumps(imports)}\n" for imports in sets)
        (self.flavor / "flavor.toml").write_text(f'name = "tiny"\n{tables}')

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start the pipeline; its lines for people come through ``stderr``."""
        command = [sys.executable, "-m", "workers.pipeline", "--flavors", str(self.flavor.parent), *arguments]
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "READIE_DATA": str(self.data), "READIE_FLAVOR": "tiny", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def make(self, *arguments: str, **environment: str) -> dict[str, Any]:
        """Run the pipeline and return what it says with ``--json``."""
        with self.start("--json", *arguments, **environment) as process:
            out, err = process.communicate(timeout=TIMEOUT_SECONDS)
        assert process.returncode == 0, err
        return dict(json.loads(out))

    def fail(self, *arguments: str, **environment: str) -> tuple[int, str]:
        """Run the pipeline, which must fail, and return its exit status and what it says."""
        with self.start(*arguments, **environment) as process:
            _, err = process.communicate(timeout=TIMEOUT_SECONDS)
        assert process.returncode != 0
        return process.returncode, err


@pytest.fixture
def workbench(tmp_path: Path) -> Workbench:
    """An empty data folder, and the small flavor."""
    shutil.copytree(FLAVORS, tmp_path / "flavors")
    return Workbench(tmp_path)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workbench, dict[str, Any]]:
    """The small flavor's generation and what the pipeline said of it; not to be changed."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(FLAVORS, folder / "flavors")
    workbench = Workbench(folder)
    return workbench, workbench.make()


@pytest.fixture
def host(made: tuple[Workbench, dict[str, Any]], tmp_path: Path) -> Iterator[SandboxHost]:
    """A worker's sandboxes on the small flavor, with room in the packages for modules of a test."""
    workbench, _ = made
    source = (workbench.data / "flavors" / "tiny" / "current").resolve()
    folder = tmp_path / "filesystem"
    shutil.copytree(source, folder, symlinks=True)
    with SandboxHost(Path(f"/run/readie-pipeline-{os.getpid()}"), find_runsc(), read_filesystem(folder)) as host:
        yield host


FIRST = "20260101T000000-abcdef01"

IDENTITY = Identity(
    runsc_version="20260224.0",
    fingerprint="f" * 64,
    filesystem_digest="d" * 64,
    python="3.11",
    cpu_features=frozenset({"avx2", "sse4_2"}),
    platform="systrap",
    wire_version=1,
)
"""Of a worker that fits what ``write_generation`` writes."""


@pytest.fixture
def write_generation(tmp_path: Path) -> Callable[..., Path]:
    """Write a generation with two checkpoints, whose images hold no process, in ``data`` below the test's folder.

    Keywords change the manifest; ``imports`` are those of ``checkpoint_1``.
    """

    def write(name: str = FIRST, imports: tuple[str, ...] = ("numpy",), **changes: Any) -> Path:
        folder = generations_folder(tmp_path / "data", "tiny") / name
        shared = {"runsc_version": IDENTITY.runsc_version, "fingerprint": IDENTITY.fingerprint}
        shared["filesystem_digest"] = IDENTITY.filesystem_digest
        shared |= {field: changes[field] for field in shared.keys() & changes.keys()}
        ids = ("checkpoint_0", "checkpoint_1")
        for number, checkpoint_id in enumerate(ids):
            image = folder / CHECKPOINTS / checkpoint_id
            image.mkdir(parents=True)
            (image / "pages.img").write_bytes(b"pages")
            meta = CheckpointMeta(
                checkpoint_id=checkpoint_id,
                imports=imports * number,
                files={"pages.img": ImageFile(size_bytes=5, sha256="0" * 64)},
                **shared,
            )
            (image / META).write_text(meta.model_dump_json())
        manifest = Manifest.model_validate(
            {
                "generation": name,
                "flavor": "tiny",
                "created_at": "2026-01-01T00:00:00Z",
                "command": ("/usr/bin/python3.11", "-m", "workers.executor"),
                "wire_version": IDENTITY.wire_version,
                "python_path": "/usr/bin/python3.11",
                "python": IDENTITY.python,
                "overlay": "root:memory",
                "network": "none",
                "gpu": "none",
                "platform": IDENTITY.platform,
                "cpu_features": sorted(IDENTITY.cpu_features),
                "checkpoints": ids,
                "inputs_digest": "abcdef01",
                **shared,
                **changes,
            }
        )
        catalogue = Catalogue(
            generation=name,
            flavor="tiny",
            python=manifest.python,
            filesystem_digest=manifest.filesystem_digest,
            cost=Cost(restore_base_seconds=0.1, restore_seconds_per_megabyte=0.001, cold_base_seconds=0.3),
            modules={"numpy": Module(import_seconds=0.5, megabytes=10)},
            checkpoints=tuple(
                Checkpoint(
                    id=checkpoint_id,
                    imported=imports * number,
                    holds=imports * number,
                    megabytes=10,
                    restore_seconds=0.1,
                )
                for number, checkpoint_id in enumerate(ids)
            ),
        )
        (folder / MANIFEST).write_text(manifest.model_dump_json())
        (folder / CATALOGUE).write_text(catalogue.model_dump_json())
        (folder / PLAN).write_text(PlanRecord(corpus=None).model_dump_json())
        return folder

    return write
