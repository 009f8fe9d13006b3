"""The files in ``deploy/`` are what systemd and Kubernetes take, and set nothing that nothing reads."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from pydantic_settings import BaseSettings

from router.settings import RouterSettings
from tests.conftest import ROOT
from tests.debian import find_program
from workers.flower import FlowerSettings
from workers.settings import WorkerSettings

KUBERNETES = "1.37"
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
OBJECTS = [
    pytest.param(manifest, id=f"{path.stem}-{manifest['kind']}")
    for path in sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
    for manifest in yaml.safe_load_all(path.read_text())
]


def fits(manifest: dict[str, Any]) -> bool:
    try:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError):
        return False
    return True


@pytest.mark.parametrize("manifest", OBJECTS)
def test_each_object_fits_kubernetes_schema(manifest: dict[str, Any]) -> None:
    assert fits(manifest)


@pytest.mark.parametrize("manifest", OBJECTS)
def test_the_schema_notices_a_misspelt_field_and_a_wrong_type(manifest: dict[str, Any]) -> None:
    assert not fits({**manifest, "spce": {}})
    assert not fits({**manifest, "metadata": {"name": 5}})


def containers() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each pod's specification with each container of it that runs our image."""
    for parameter in OBJECTS:
        template = parameter.values[0].get("spec", {}).get("template")
        for container in template["spec"]["containers"] if template else ():
            if container["image"] == "readie":
                yield template["spec"], container


def test_sandboxes_are_made_without_more_rights_than_needed() -> None:
    making = [(pod, one) for pod, one in containers() if one["args"][3].startswith("workers")]
    assert len(making) == 2
    for pod, container in making:
        rights = container["securityContext"]
        assert rights["capabilities"] == {"add": ["SYS_ADMIN", "SYS_PTRACE"]}
        assert rights["privileged"] is False
        assert not {"hostPID", "hostNetwork", "hostIPC"} & pod.keys()
        assert not [volume for volume in pod["volumes"] if "hostPath" in volume]


def test_a_network_for_functions_in_compose_takes_one_capability_more() -> None:
    base, more = (
        yaml.safe_load((ROOT / name).read_text())["services"] for name in ("compose.yaml", "compose.network.yaml")
    )
    assert more.keys() == {"worker", "generation"} <= base.keys()
    for service in more.values():
        assert service == {"cap_add": ["NET_ADMIN"], "environment": {"SANDBOX_NETWORK": "sandbox"}}


def test_a_stopped_worker_has_time_for_its_calls() -> None:
    needed = sum(WorkerSettings.model_fields[f"{name}drain_seconds"].default for name in ("", "session_"))
    (pod,) = (pod for pod, one in containers() if one["args"][3] == "workers")
    assert pod["terminationGracePeriodSeconds"] > needed
    unit = (ROOT / "deploy" / "systemd" / "readie-worker.service").read_text()
    assert int(re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)[0]) > needed


def test_every_variable_that_is_set_is_read() -> None:
    models: tuple[type[BaseSettings], ...] = (RouterSettings, WorkerSettings, FlowerSettings)
    read = {f"READIE_{name.upper()}" for model in models for name in model.model_fields}
    texts = [path.read_text() for path in (ROOT / "deploy").rglob("*.*")]
    named = {name for text in texts for name in re.findall(r"READIE_[A-Z_]+", text)}
    assert len(named) > 5
    assert named - read == set()


def verify(unit: Path, text: str, folder: Path) -> str:
    """Return what systemd finds wrong with a unit of which the programs are this checkout's."""
    copied = folder / unit.name
    copied.write_text(text.replace("/opt/readie/.venv/bin/python", sys.executable))
    done = subprocess.run(
        [find_program("systemd-analyze", package="systemd"), "verify", copied],
        capture_output=True,
        text=True,
        check=False,
    )
    return "\n".join(line for line in done.stderr.splitlines() if unit.name in line)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_finds_nothing_wrong_with_the_units(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text()
    assert verify(unit, text, tmp_path) == ""
    assert "Restrat" in verify(unit, text.replace("Restart=", "Restrat="), tmp_path)


def test_commands_are_programs_of_ours() -> None:
    commands = [one["args"] for _, one in containers()]
    commands += [line.split()[1:] for unit in UNITS for line in unit.read_text().splitlines() if "ExecStart=" in line]
    commands = [["python", *command] if command[0] != "python" else command for command in commands]
    assert len(commands) == 5
    for command in commands:
        assert command[:3] == ["python", "-P", "-m"]
        assert (ROOT / command[3].replace(".", "/") / "__main__.py").exists()
