"""Real generations, captured by the command in real sandboxes."""

from __future__ import annotations

import logging
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from readie.generations.disk import current_generation, load_generation, read_meta, verify
from tests.conftest import ROOT
from tests.pipeline.conftest import TIMEOUT_SECONDS, Workbench
from workers.executor.wire import WIRE_VERSION
from workers.generation import Identity, check, host_cpu_features
from workers.pipeline.capture import CaptureError, capture, refuse_clones, restore
from workers.pipeline.filesystem import host_python, measured_digest
from workers.sandbox.filesystem import read_filesystem
from workers.sandbox.fingerprint import fingerprint
from workers.sandbox.host import SandboxHost
from workers.sandbox.runsc import Runsc, find_runsc
from workers.sandbox.shape import sandbox_shape

pytestmark = pytest.mark.sandbox

Made = tuple[Workbench, dict[str, Any]]


def test_the_generation_is_whole_and_says_what_it_was_made_with(made: Made) -> None:
    workbench, said = made
    folder = current_generation(workbench.data, "tiny")
    assert folder is not None
    assert (said["path"], said["generation"], said["reused"]) == (str(folder), folder.name, False)
    assert workbench.published() == sorted([folder.name, "current"])
    generation = load_generation(folder)
    assert list(generation.checkpoints) == ["checkpoint_0", "checkpoint_1"]
    assert generation.dropped == {}
    assert verify(generation) == []

    filesystem = read_filesystem((workbench.data / "flavors" / "tiny" / "current").resolve())
    manifest = generation.manifest
    assert manifest.filesystem_digest == filesystem.digest == measured_digest(filesystem)
    assert manifest.command == sandbox_shape(filesystem).command
    assert manifest.python_path == str(host_python().executable)
    assert (manifest.network, manifest.overlay, manifest.gpu) == ("none", "root:memory", "none")
    assert (manifest.wire_version, manifest.platform) == (WIRE_VERSION, "systrap")
    assert 0 <= (datetime.now(UTC) - manifest.created_at).total_seconds() < 3600
    for checkpoint_id, imports in (("checkpoint_0", ()), ("checkpoint_1", ("numpy",))):
        meta = read_meta(generation.checkpoints[checkpoint_id])
        assert (meta.checkpoint_id, meta.imports) == (checkpoint_id, imports)
        assert (meta.runsc_version, meta.fingerprint) == (manifest.runsc_version, manifest.fingerprint)
        assert (meta.datasets, meta.models, meta.tokenizers) == ((), (), ())


def test_the_catalogue_tells_what_was_measured(made: Made) -> None:
    _, said = made
    catalogue = load_generation(Path(said["path"])).catalogue
    assert "numpy" in catalogue.modules
    assert catalogue.modules["numpy"].import_seconds > 0
    assert catalogue.modules["numpy"].megabytes > 1
    empty, numpy = catalogue.checkpoints
    assert "numpy" in numpy.holds
    assert "numpy" not in empty.holds
    assert numpy.megabytes > empty.megabytes > 0
    assert min(empty.restore_seconds, numpy.restore_seconds, catalogue.cost.cold_base_seconds) > 0


def test_a_worker_of_the_same_shape_may_use_it_and_restores_it(made: Made, host: SandboxHost) -> None:
    _, said = made
    generation = load_generation(Path(said["path"]))
    own = Identity(
        runsc_version=Runsc(find_runsc()).version,
        fingerprint=host.fingerprint,
        filesystem_digest=measured_digest(host.filesystem),
        python=host.filesystem.python_version,
        cpu_features=host_cpu_features(),
        platform="systrap",
        wire_version=WIRE_VERSION,
    )
    assert check(generation, own) == []
    assert len(generation.manifest.cpu_features) > 10
    other = replace(own, fingerprint=fingerprint(sandbox_shape(host.filesystem, overlay="none")))
    assert [mismatch.field for mismatch in check(generation, other)] == ["fingerprint"]
    sandbox = host.take()
    sandbox.restore(generation.checkpoints["checkpoint_1"], timeout=60)
    connection = sandbox.wait_ready(timeout=60)
    assert (connection.hello.start, connection.hello.imported) == ("restored", ["numpy"])
    host.discard(sandbox)


def test_a_second_run_finds_the_first_ones_generation(made: Made) -> None:
    workbench, first = made
    second = workbench.make()
    assert second["reused"] is True
    assert second["path"] == first["path"]


@pytest.mark.parametrize("stage", ["capturing", "restoring"])
def test_killed_in_the_middle_it_leaves_nothing_to_be_seen_and_the_next_run_cleans_up(
    made: Made, workbench: Workbench, stage: str
) -> None:
    shutil.copytree(made[0].data, workbench.data, symlinks=True)
    before, published = current_generation(workbench.data, "tiny"), workbench.published()
    workbench.plan(["numpy"], ["json"])
    process = workbench.start()
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(stage):
            break
    process.send_signal(signal.SIGKILL)
    assert process.wait(timeout=TIMEOUT_SECONDS) == -signal.SIGKILL
    process.communicate()
    assert len(list(workbench.generations.glob(".staging-*"))) == 1
    assert (current_generation(workbench.data, "tiny"), workbench.published()) == (before, published)

    workbench.plan(["numpy"])
    assert workbench.make()["reused"] is True
    assert list(workbench.generations.glob(".staging-*")) == []
    assert _running_below(workbench) == []


def test_stopped_by_a_signal_it_cleans_up_itself(made: Made, workbench: Workbench) -> None:
    shutil.copytree(made[0].data, workbench.data, symlinks=True)
    workbench.plan(["json"])
    process = workbench.start()
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("capturing"):
            break
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 130
    assert "as before" in err
    assert workbench.published() == made[0].published()
    assert list(workbench.generations.glob(".staging-*")) == []
    assert _running_below(workbench) == []


def test_a_full_disk_fails_the_run_and_leaves_the_old_generation(made: Made, workbench: Workbench) -> None:
    workbench.data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "readie-test", workbench.data], check=True)
    try:
        shutil.copytree(made[0].data, workbench.data, symlinks=True, dirs_exist_ok=True)
        before = current_generation(workbench.data, "tiny")
        full = f"remount,size={shutil.disk_usage(workbench.data).used + (1 << 20)}"
        subprocess.run(["mount", "-o", full, workbench.data], check=True)
        workbench.plan(["json"])
        status, said = workbench.fail()
        assert status == 1
        assert "no space left" in said.lower()
        assert workbench.published() == made[0].published()
        assert current_generation(workbench.data, "tiny") == before
        assert list(workbench.generations.glob(".staging-*")) == []
        assert _running_below(workbench) == []

        subprocess.run(["mount", "-o", "remount,size=1g", workbench.data], check=True)
        assert workbench.make()["reused"] is False
    finally:
        subprocess.run(["umount", "-l", workbench.data], check=True)


def _running_below(workbench: Workbench) -> list[str]:
    """Return the command lines of processes that have to do with the workbench."""
    return [
        command
        for file in Path("/proc").glob("[0-9]*/cmdline")
        if str(workbench.data) in (command := _read(file).replace("\0", " "))
    ]


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def test_a_changed_plan_makes_a_new_generation_and_going_back_finds_the_old(made: Made, workbench: Workbench) -> None:
    shutil.copytree(made[0].data, workbench.data, symlinks=True)
    old = current_generation(workbench.data, "tiny")
    workbench.plan(["json", "decimal"])
    new = workbench.make()
    assert new["reused"] is False
    assert str(current_generation(workbench.data, "tiny")) == new["path"]
    workbench.plan(["numpy"])
    assert workbench.make()["path"] == str(old)
    assert current_generation(workbench.data, "tiny") == old


def test_a_damaged_generation_is_not_found_again(made: Made, workbench: Workbench) -> None:
    shutil.copytree(made[0].data, workbench.data, symlinks=True)
    old = current_generation(workbench.data, "tiny")
    assert old is not None
    pages = old / "checkpoints" / "checkpoint_0" / "pages.img"
    content = bytearray(pages.read_bytes())
    content[len(content) // 2] ^= 1
    pages.write_bytes(content)
    (problem,) = verify(load_generation(old))
    assert problem == "checkpoint_0: the content of pages.img has changed"
    made_again = workbench.make()
    assert made_again["reused"] is False
    assert verify(load_generation(Path(made_again["path"]))) == []


def test_a_module_that_cannot_be_imported_fails_the_run_and_leaves_the_old_generation(
    made: Made, workbench: Workbench
) -> None:
    shutil.copytree(made[0].data, workbench.data, symlinks=True)
    workbench.plan(["numpy", "no_such_module"])
    status, said = workbench.fail()
    assert status == 1
    assert "checkpoint_1" in said
    assert "no_such_module (ModuleNotFoundError" in said
    assert workbench.published() == made[0].published()


def test_a_module_that_leaves_a_socket_open_is_not_captured(host: SandboxHost, tmp_path: Path) -> None:
    module = host.filesystem.packages / "opens_socket.py"
    module.write_text("import socket\nkept = socket.socketpair()\n")
    with pytest.raises(CaptureError, match="checkpoint_1: 2 sockets are open"):
        capture(host, ["opens_socket"], tmp_path / "checkpoint_1")


def test_a_failed_capture_is_tried_once_more(
    host: SandboxHost, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = host.filesystem.packages / "fails_first.py"
    module.write_text("import os\nos._exit(3)\n")

    class Repairs(logging.Handler):
        def emit(self, _record: logging.LogRecord) -> None:
            module.write_text("")

    handler = Repairs()
    logging.getLogger("workers.pipeline.capture").addHandler(handler)
    try:
        report = capture(host, ["fails_first"], tmp_path / "checkpoint_1")
    finally:
        logging.getLogger("workers.pipeline.capture").removeHandler(handler)
    assert report.imported == ["fails_first"]
    assert len([record for record in caplog.records if "trying once more" in record.message]) == 1
    assert restore(host, tmp_path / "checkpoint_1").seconds > 0


def test_an_import_that_always_ends_its_process_fails_the_capture(host: SandboxHost, tmp_path: Path) -> None:
    (host.filesystem.packages / "ends.py").write_text("import os\nos._exit(3)\n")
    with pytest.raises(CaptureError, match="checkpoint_1"):
        capture(host, ["ends"], tmp_path / "checkpoint_1")


def test_clones_that_draw_the_same_values_are_refused(host: SandboxHost, tmp_path: Path) -> None:
    # It puts one that the executor can't know in the place of a generator which is reseeded after a restore.
    (host.filesystem.packages / "fixed_dice.py").write_text("import random\nrandom.random = lambda: 4\n")
    capture(host, ["fixed_dice"], tmp_path / "checkpoint_1")
    clones = [restore(host, tmp_path / "checkpoint_1") for _ in range(2)]
    with pytest.raises(CaptureError, match="checkpoint_1: its clones draw the same values from random"):
        refuse_clones("checkpoint_1", clones)


@pytest.mark.parametrize(
    ("environment", "says"),
    [({"READIE_RUNSC": "/nowhere/runsc"}, "/nowhere/runsc"), ({"SANDBOX_NETWORK": "host"}, "SANDBOX_NETWORK")],
)
def test_what_is_missing_or_wrong_is_said_before_anything_is_built(
    workbench: Workbench, environment: dict[str, str], says: str
) -> None:
    status, said = workbench.fail(**environment)
    assert status == 2
    assert says in said
    assert not workbench.data.exists()


def test_without_root_it_says_so(workbench: Workbench) -> None:
    code = "import os, sys; from workers.pipeline.__main__ import main; os.seteuid(65534); sys.exit(main([]))"
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS
    )
    assert ended.returncode == 2
    assert "need root" in ended.stderr
