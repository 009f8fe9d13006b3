"""A generation that one runsc has captured, and a worker that has another."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from readie.generations.disk import current_generation, load_generation
from tests.pipeline.conftest import Workbench
from workers import checkpoints
from workers.sandbox.runsc import Runsc, find_runsc
from workers.settings import WorkerSettings

pytestmark = pytest.mark.sandbox

Made = tuple[Workbench, dict[str, Any]]


@pytest.fixture(scope="module")
def other_runsc() -> Path:
    """A runsc of another version than the one in use, from those that the set-up script keeps."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "readie" / "runsc"
    used = Runsc(find_runsc()).version
    others = [path for path in sorted(cache.glob("*/runsc")) if Runsc(path).version != used]
    if not others:
        pytest.skip("there is only one runsc on this machine")
    return others[0]


def settings(workbench: Workbench, **changes: Any) -> WorkerSettings:
    return WorkerSettings(data=workbench.data, flavor="tiny", **changes)


def test_a_worker_of_another_runsc_drops_all_and_names_field_both_versions_and_the_fix(
    made: Made, workbench: Workbench, other_runsc: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(made[0].data, workbench.data, symlinks=True)
    used, other = Runsc(find_runsc()).version, Runsc(other_runsc).version
    for captured_by, worker_has, make_with in ((used, other, None), (other, used, other_runsc)):
        if make_with is not None:
            assert workbench.make(READIE_RUNSC=str(make_with))["reused"] is False
        current = current_generation(workbench.data, "tiny")
        assert current is not None
        assert load_generation(current).manifest.runsc_version == captured_by

        caplog.clear()
        served = checkpoints.load(settings(workbench), worker_has)
        assert (served.generation_id, served.catalogue, served.images) == (None, None, {})
        (error, consequence) = (record for record in caplog.records if record.levelno == logging.ERROR)
        assert "runsc_version" in error.message
        assert f"the generation has {captured_by}, this worker {worker_has}" in error.message
        assert f"start the worker with runsc {captured_by} (READIE_RUNSC)" in error.message
        assert "every call starts cold" in consequence.message

        caplog.clear()
        kept = checkpoints.load(settings(workbench, checkpoint_strict_compat=False), worker_has)
        assert list(kept.images) == ["checkpoint_0", "checkpoint_1"]
        assert {record.levelno for record in caplog.records} == {logging.WARNING}

        assert len(checkpoints.load(settings(workbench), captured_by).images) == 2


def test_a_worker_with_other_sandbox_settings_drops_all_and_names_them(
    made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    served = checkpoints.load(settings(made[0], sandbox_overlay="none"), Runsc(find_runsc()).version)
    assert served.images == {}
    errors = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert "fingerprint: " in errors[0]
    assert "SANDBOX_NETWORK=none SANDBOX_OVERLAY=root:memory SANDBOX_GPU=none" in errors[0]


def test_a_changed_filesystem_drops_all(made: Made, workbench: Workbench, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(made[0].data, workbench.data, symlinks=True)
    with (workbench.data / "flavors" / "tiny" / "current" / "packages" / "numpy" / "version.py").open("a") as file:
        file.write("# changed\n")
    assert checkpoints.load(settings(workbench), Runsc(find_runsc()).version).images == {}
    assert any("filesystem_digest: " in record.message for record in caplog.records)


def test_an_unreadable_checkpoint_drops_itself_alone(
    made: Made, workbench: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(made[0].data, workbench.data, symlinks=True)
    current = current_generation(workbench.data, "tiny")
    assert current is not None
    (current / "checkpoints" / "checkpoint_1" / "pages.img").unlink()
    served = checkpoints.load(settings(workbench), Runsc(find_runsc()).version)
    assert list(served.images) == ["checkpoint_0"]
    assert served.catalogue is not None
    assert [checkpoint.id for checkpoint in served.catalogue.checkpoints] == ["checkpoint_0"]
    assert any("checkpoint_1" in record.message and "pages.img" in record.message for record in caplog.records)
