"""``readie generation``, on generations that hold no process: it runs without root, and without a worker's packages."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from readie.generations.disk import GenerationError, current_generation
from readie.generations.publish import building_in
from readie.generations.store import find, in_use, prune, use
from tests.pipeline.conftest import FIRST

Write = Callable[..., Path]

SECOND = "20260202T000000-abcdef02"
THIRD = "20260303T000000-abcdef03"
DIGESTS = {FIRST: "1" * 64, SECOND: "2" * 64, THIRD: "3" * 64}


class Command:
    """The command line on the test's data."""

    def __init__(self, data: Path) -> None:
        self._environment = {**os.environ, "READIE_DATA": str(data), "READIE_FLAVOR": "tiny", "COLUMNS": "200"}

    def run(self, *arguments: str, status: int = 0) -> str:
        """Return what it prints; with another exit status than 0, what it says is wrong."""
        done = subprocess.run(
            [sys.executable, "-m", "readie", "generation", *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == status, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr if status and not done.stdout else done.stdout

    def json(self, *arguments: str, status: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", status=status))


@pytest.fixture
def data(tmp_path: Path, write_generation: Write) -> Path:
    """Three generations with a filesystem each; the second is the current one, the last filesystem too."""
    data = tmp_path / "data"
    write_generation(FIRST, filesystem_digest=DIGESTS[FIRST])
    write_generation(SECOND, filesystem_digest=DIGESTS[SECOND])
    write_generation(THIRD, imports=("numpy", "pandas"), filesystem_digest=DIGESTS[THIRD], runsc_version="20270101.0")
    for digest in DIGESTS.values():
        folder = data / "flavors" / "tiny" / digest
        folder.mkdir(parents=True)
        (folder / "filesystem.json").write_text("{}")
    (data / "flavors" / "tiny" / "current").symlink_to(DIGESTS[THIRD])
    use(data, "tiny", data / "generations" / "tiny" / SECOND)
    return data


@pytest.fixture
def command(data: Path) -> Command:
    return Command(data)


def _left(data: Path) -> tuple[list[str], list[str]]:
    """Return the generations and the filesystems that are there."""
    folders = (data / "generations" / "tiny", data / "flavors" / "tiny")
    names = [
        sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.is_symlink())
        for folder in folders
    ]
    return names[0], names[1]


def test_list_shows_the_newest_first_and_which_is_current(command: Command) -> None:
    rows = command.json("list")
    assert [(row["generation"], row["current"], row["in_use"]) for row in rows] == [
        (THIRD, False, False),
        (SECOND, True, False),
        (FIRST, False, False),
    ]
    assert rows[0]["runsc_version"] == "20270101.0"
    assert Path(rows[1]["path"]).name == SECOND
    assert "current" in next(line for line in command.run("list").splitlines() if SECOND in line)
    assert "no generation" in command.run("list", "--flavor", "other")


def test_show_tells_the_folder_and_what_is_in_it(command: Command, data: Path) -> None:
    shown = command.json("show")
    assert shown["path"] == str(data / "generations" / "tiny" / SECOND)
    assert shown["manifest"]["generation"] == SECOND
    assert [checkpoint["id"] for checkpoint in shown["checkpoints"]] == ["checkpoint_0", "checkpoint_1"]
    assert (shown["in_use"], shown["dropped"]) == (False, {})
    text = command.run("show", THIRD[:8])
    assert THIRD in text
    assert "numpy pandas" in text


def test_a_name_that_means_none_or_several_is_refused_with_those_that_are_there(command: Command, data: Path) -> None:
    assert THIRD in command.run("show", "2027", status=1)
    assert "3 generations '2026'" in command.run("show", "2026", status=1)
    with pytest.raises(GenerationError, match="has no current generation"):
        find(data, "other", "current")


def test_use_switches_in_one_step_and_only_to_what_can_be_read(command: Command, data: Path) -> None:
    assert command.json("use", FIRST)["path"].endswith(FIRST)
    assert current_generation(data, "tiny") == (data / "generations" / "tiny" / FIRST).resolve()
    (data / "generations" / "tiny" / THIRD / "catalogue.json").write_text("{")
    assert "catalogue.json" in command.run("use", THIRD, status=1)
    assert current_generation(data, "tiny") == (data / "generations" / "tiny" / FIRST).resolve()


def test_verify_names_the_file_that_has_changed(command: Command, data: Path) -> None:
    images = data / "generations" / "tiny" / SECOND / "checkpoints"
    for image in images.iterdir():
        digest = hashlib.sha256((image / "pages.img").read_bytes()).hexdigest()
        (image / "meta.json").write_text((image / "meta.json").read_text().replace("0" * 64, digest))
    assert command.json("verify")["problems"] == []
    (images / "checkpoint_1" / "pages.img").write_bytes(b"Pages")
    assert command.json("verify", status=1)["problems"] == ["checkpoint_1: the content of pages.img has changed"]
    assert "content of pages.img" in command.run("verify", status=1)


def test_prune_keeps_the_current_one_and_the_newest_others(command: Command, data: Path) -> None:
    would = command.json("prune", "--dry-run", "--keep", "0")
    assert would["generations"] == [THIRD, FIRST]
    assert _left(data) == ([FIRST, SECOND, THIRD], sorted(DIGESTS.values()))
    done = command.json("prune")
    assert (done["generations"], done["filesystems"]) == ([FIRST], [DIGESTS[FIRST]])
    assert done["freed_bytes"] > 0
    assert _left(data) == ([SECOND, THIRD], [DIGESTS[SECOND], DIGESTS[THIRD]])
    command.run("prune", "--keep", "0")
    # The filesystem that was built last is what a worker without a generation serves.
    assert _left(data) == ([SECOND], [DIGESTS[SECOND], DIGESTS[THIRD]])
    assert current_generation(data, "tiny") == (data / "generations" / "tiny" / SECOND).resolve()


def test_prune_never_removes_what_a_worker_serves(command: Command, data: Path) -> None:
    served = data / "generations" / "tiny" / FIRST
    with (
        (served / "manifest.json").open() as manifest,
        (data / "flavors" / "tiny" / DIGESTS[FIRST] / "filesystem.json").open() as filesystem,
    ):
        for file in (manifest, filesystem):
            fcntl.flock(file, fcntl.LOCK_SH)
        assert in_use(served)
        assert command.json("list")[2]["in_use"] is True
        pruned = command.json("prune", "--keep", "0")
        assert (pruned["generations"], pruned["in_use"]) == ([THIRD], [FIRST])
        assert f"Kept {FIRST}: a worker serves it" in command.run("prune", "--keep", "0")
    assert not in_use(served)
    assert _left(data)[0] == [FIRST, SECOND]


def test_a_filesystem_that_is_served_without_a_generation_stays(data: Path) -> None:
    with (data / "flavors" / "tiny" / DIGESTS[FIRST] / "filesystem.json").open() as filesystem:
        fcntl.flock(filesystem, fcntl.LOCK_SH)
        pruned = prune(data, "tiny", keep=0)
    assert pruned.in_use == (DIGESTS[FIRST],)
    assert DIGESTS[FIRST] in _left(data)[1]


def test_prune_waits_for_no_build_and_disturbs_none(command: Command, data: Path) -> None:
    with building_in(data / "generations" / "tiny"):
        assert "is at work" in command.run("prune", status=1)
    assert len(_left(data)[0]) == 3


def test_a_generation_that_is_being_removed_is_not_switched_to(data: Path) -> None:
    folder = data / "generations" / "tiny" / THIRD
    with (folder / "manifest.json").open() as manifest:
        fcntl.flock(manifest, fcntl.LOCK_EX)
        with pytest.raises(GenerationError, match="just being removed"):
            use(data, "tiny", folder)


def test_diff_names_what_is_different(command: Command, data: Path) -> None:
    differences = command.json("diff", SECOND, THIRD)
    assert differences["manifest"]["runsc_version"] == {"before": "20260224.0", "after": "20270101.0"}
    assert differences["checkpoints"] == [
        {"before": "checkpoint_1", "after": "checkpoint_1", "added": ["pandas"], "removed": []}
    ]
    text = command.run("diff", SECOND, THIRD)
    assert "runsc_version: 20260224.0 -> 20270101.0" in text
    assert "+pandas" in text
    catalogue = data / "generations" / "tiny" / FIRST / "catalogue.json"
    catalogue.write_text(catalogue.read_text().replace('"import_seconds":0.5', '"import_seconds":0.7'))
    assert command.json("diff", SECOND, FIRST)["modules"] == {"numpy": {"before": 0.5, "after": 0.7}}
    assert "Made for the same" in command.run("diff", "current")


def test_it_needs_nothing_that_only_servers_have(data: Path) -> None:
    code = (
        "import sys; from readie.cli.app import app\n"
        "try: app(['generation', 'prune', '--dry-run'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('workers', 'router', 'celery', 'kombu')])"
    )
    environment = {**os.environ, "READIE_DATA": str(data), "READIE_FLAVOR": "tiny"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
