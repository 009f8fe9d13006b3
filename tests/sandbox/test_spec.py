from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from workers.executor import layout
from workers.sandbox.filesystem import Filesystem, copy_executor, read_filesystem, write_filesystem
from workers.sandbox.fingerprint import fingerprint
from workers.sandbox.shape import SandboxShape, sandbox_shape
from workers.sandbox.spec import mount_sources, oci_spec


@pytest.fixture
def flavor() -> Filesystem:
    return Filesystem(
        python=Path("/opt/python/bin/python3.11"),
        prefix=Path("/opt/python"),
        packages=Path("/flavor/packages"),
        executor=Path("/flavor/executor"),
        digest="d",
        python_version="3.11",
    )


@pytest.fixture
def shape(flavor: Filesystem) -> SandboxShape:
    return sandbox_shape(flavor)


def spec(shape: SandboxShape, flavor: Filesystem, **changes: Any) -> dict[str, Any]:
    arguments = {
        "root": Path("/r"),
        "sources": mount_sources(flavor, Path("/l"), Path("/c")),
        "hostname": "h",
        **changes,
    }
    return oci_spec(shape, **arguments)


def sources(document: dict[str, Any]) -> dict[str, str]:
    return {mount["destination"]: mount["source"] for mount in document["mounts"]}


def test_it_is_json_and_gives_the_process_no_rights(shape: SandboxShape, flavor: Filesystem) -> None:
    document = json.loads(json.dumps(spec(shape, flavor)))
    process = document["process"]

    assert process["user"] == {"uid": 65534, "gid": 65534}
    assert process["noNewPrivileges"] is True
    assert set(map(tuple, process["capabilities"].values())) == {()}
    assert document["root"] == {"path": "/r", "readonly": True}
    assert {namespace["type"] for namespace in document["linux"]["namespaces"]} >= {"pid", "network", "ipc", "mount"}


def test_nothing_of_the_host_is_writable_but_the_control_directory(shape: SandboxShape, flavor: Filesystem) -> None:
    writable = {
        mount["destination"]
        for mount in spec(shape, flavor)["mounts"]
        if mount["type"] == "bind" and "ro" not in mount["options"]
    }

    assert writable == {str(layout.CONTROL_DIR)}


def test_only_the_listed_folders_of_the_host_are_seen(shape: SandboxShape, flavor: Filesystem) -> None:
    seen = sources({"mounts": [mount for mount in spec(shape, flavor)["mounts"] if mount["type"] == "bind"]})

    assert set(seen) - {"/lib64"} == {
        "/usr", "/lib", "/bin", "/opt/python", "/opt/readie", "/opt/packages", "/opt/layers", "/run/readie",
    }  # fmt: skip
    assert seen["/opt/packages"] == "/flavor/packages"
    assert seen["/opt/readie"] == "/flavor/executor"
    assert seen["/opt/layers"] == "/l"
    assert seen["/run/readie"] == "/c"
    assert seen["/opt/python"] == "/opt/python"


def test_a_linked_system_folder_comes_from_where_the_link_leads(flavor: Filesystem, tmp_path: Path) -> None:
    (tmp_path / "usr").mkdir()
    (tmp_path / "lib").symlink_to("usr")
    shape = sandbox_shape(flavor, system_dirs=[str(tmp_path / "lib"), str(tmp_path / "lib64")])
    seen = sources(spec(shape, flavor))

    assert seen[str(tmp_path / "lib")] == str(tmp_path / "usr")
    assert str(tmp_path / "lib64") not in seen


def test_a_python_of_the_system_needs_no_mount_of_its_own(flavor: Filesystem) -> None:
    shape = sandbox_shape(dataclasses.replace(flavor, python=Path("/usr/bin/python3"), prefix=Path("/usr")))

    assert [mount.destination for mount in shape.mounts].count("/usr") == 1


def test_what_belongs_to_one_sandbox_or_one_build_is_not_in_the_fingerprint(flavor: Filesystem) -> None:
    elsewhere = dataclasses.replace(flavor, packages=Path("/x/packages"), executor=Path("/x/executor"), digest="e")

    assert fingerprint(sandbox_shape(elsewhere)) == fingerprint(sandbox_shape(flavor))


def test_processes_and_files_inside_are_bounded(shape: SandboxShape, flavor: Filesystem) -> None:
    rlimits = {entry["type"]: (entry["soft"], entry["hard"]) for entry in spec(shape, flavor)["process"]["rlimits"]}

    assert rlimits == {"RLIMIT_CORE": (0, 0), "RLIMIT_NOFILE": (4096, 4096), "RLIMIT_NPROC": (512, 512)}
    assert shape.pids_limit is not None
    assert shape.pids_limit > 512, "the host's limit ends the sandbox, the one inside is an error of the function"


def test_a_filesystem_is_read_as_it_was_written(tmp_path: Path) -> None:
    python, prefix = Path("/p/bin/python3"), Path("/p")
    written = write_filesystem(tmp_path, python=python, prefix=prefix, digest="d", python_version="3.12")

    assert read_filesystem(tmp_path) == written
    assert written.packages == tmp_path / "packages"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"python": "/p"}'])
def test_a_damaged_description_is_told_with_its_path(tmp_path: Path, text: str) -> None:
    (tmp_path / "filesystem.json").write_text(text)

    with pytest.raises(ValueError, match=str(tmp_path)):
        read_filesystem(tmp_path)


def test_of_workers_the_executor_alone_is_copied(tmp_path: Path) -> None:
    copy_executor(tmp_path)

    assert sorted(path.name for path in (tmp_path / "workers").iterdir()) == ["__init__.py", "executor"]
    assert (tmp_path / "readie" / "protocol" / "payload.py").is_file()
    assert list(tmp_path.rglob("__pycache__")) == []
