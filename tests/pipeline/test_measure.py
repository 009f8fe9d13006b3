"""Measuring imports in real sandboxes: also of modules that fail, hang, crash or leave something behind."""

from pathlib import Path

import pytest

from workers.pipeline import measure
from workers.pipeline.installed import Installed
from workers.pipeline.measure import Measurer
from workers.pipeline.runs import ImportRun, KnownRuns, whole
from workers.sandbox.host import SandboxHost

pytestmark = pytest.mark.sandbox

MODULES = {
    "odd/__init__.py": "",
    "odd/good.py": "import json, odd.helper\nballast = bytearray(30_000_000)\n",
    "odd/helper.py": "",
    "odd/raises.py": "raise RuntimeError('not here')\n",
    "odd/crashes.py": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
    "odd/hangs.py": "while True: pass\n",
    "odd/leaves.py": (
        "import threading, time, socket\n"
        "threading.Thread(target=time.sleep, args=(1e6,), name='watcher', daemon=True).start()\n"
        "kept = socket.socketpair()\n"
    ),
    "odd/exits.py": "raise SystemExit(0)\n",
    "gone/__init__.py": "import os\nos._exit(0)\n",
    "gone/below.py": "",
}
NAMES = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in MODULES} | {"cloudpickle"}


@pytest.fixture
def measured(host: SandboxHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, ImportRun]:
    """What measuring the odd modules said."""
    monkeypatch.setattr(measure, "IMPORT_SECONDS", 5)
    for name, content in MODULES.items():
        path = host.filesystem.packages / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    return _measure(host, tmp_path)


def _measure(host: SandboxHost, tmp_path: Path) -> dict[str, ImportRun]:
    known = KnownRuns(tmp_path / "known.json", Installed(host.filesystem.packages), host.runsc_version)
    with Measurer(host, known) as measurer:
        runs = measurer.measure(NAMES, lambda _: None)
    known.save()
    return runs


def test_every_module_is_measured_or_its_failure_recorded(
    measured: dict[str, ImportRun], host: SandboxHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = {name: run.error for name, run in measured.items() if run.error is not None}
    assert errors == {
        "odd.raises": "RuntimeError: not here",
        "odd.exits": "SystemExit: 0",
        "odd.crashes": "its process ended with -11",
        "odd.hangs": "its import did not end within 5 s",
        # It ends its process with status 0, before it could say anything.
        "gone": "its process ended without an answer",
    }
    good = measured["odd.good"]
    assert good.after == "odd"
    assert {"odd.good", "odd.helper"} <= set(good.loaded)
    assert good.megabytes == pytest.approx(30, abs=3)
    assert sum(good.own_seconds.values()) > 0
    assert measured["odd.helper"].loaded == ("odd.helper",), "its process had imported no other module before"
    assert measured["odd.leaves"].unfit == "its import leaves the thread 'watcher' running, 2 sockets open"
    assert whole(measured)["odd.good"].unfit is None
    assert measured["cloudpickle"] == ImportRun(loaded=("cloudpickle",)), "every executor has it"

    def start_cold(_host: SandboxHost) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(measure, "start_cold", start_cold)
    assert _measure(host, tmp_path) == measured
