"""Every runsc that can be had works, and none restores what another has captured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.versions import other_versions
from workers.sandbox.filesystem import Filesystem
from workers.sandbox.host import SandboxHost
from workers.sandbox.processes import processes_under
from workers.sandbox.runsc import Runsc, find_runsc
from workers.sandbox.sandbox import SandboxFailedError

SECONDS = 60.0

pytestmark = pytest.mark.sandbox


def test_another_version_works_by_itself_and_refuses_this_ones_images(
    run_dir: Path, filesystem: Filesystem, images: Path, tmp_path: Path, run_call: Callable[..., Any]
) -> None:
    others = other_versions()
    if not others:
        pytest.skip("there is only one runsc on this machine")
    for number, runsc in enumerate(others):
        with SandboxHost(run_dir / f"other{number}", runsc, filesystem) as host:
            captured = host.take()
            captured.start(timeout=SECONDS, imports=["numpy"])
            captured.wait_imported(timeout=SECONDS)
            captured.checkpoint(tmp_path / host.runsc_version, timeout=SECONDS)
            restored = host.take(to_restore=True)
            assert any(
                b"restore" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                for pid in processes_under(restored.folder)
            ), "it has begun to restore and waits to hear what"
            restored.restore(tmp_path / host.runsc_version, timeout=SECONDS)
            assert run_call(restored.wait_ready(timeout=SECONDS), lambda: "restored") == "restored"

            with pytest.raises(SandboxFailedError, match="restoring empty failed"):
                host.take().restore(images / "empty", timeout=SECONDS)
        with (
            SandboxHost(run_dir / f"used{number}", find_runsc(), filesystem) as host,
            pytest.raises(SandboxFailedError, match=r"restoring .* failed"),
        ):
            host.take().restore(tmp_path / Runsc(runsc).version, timeout=SECONDS)
