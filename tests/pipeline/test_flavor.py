"""A flavor's description, its lock file and the filesystem built from it. Installs one small package."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import ROOT
from workers.pipeline import uv
from workers.pipeline.filesystem import build_filesystem, host_python, measured_digest
from workers.pipeline.flavor import Flavor, FlavorError, read_flavor

PYTHON = host_python().version


@pytest.fixture
def flavor(tmp_path: Path) -> Flavor:
    """A flavor with cloudpickle alone and no lock file yet."""
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "flavor.toml").write_text('name = "small"\n[[checkpoint]]\nimports = ["cloudpickle"]\n')
    (folder / "requirements.txt").write_text("cloudpickle\n")
    return read_flavor(folder, PYTHON)


@pytest.mark.parametrize(
    ("source", "extras", "lock", "checkpoints"),
    [
        ("flavors/default", (), "requirements.lock", 0),
        ("flavors/default", ("torch",), "requirements-torch.lock", 0),
        ("examples/flavors/default", (), "requirements.lock", 2),
    ],
)
def test_a_shipped_flavor_is_sound_and_its_lock_is_up_to_date(
    source: str, extras: tuple[str, ...], lock: str, checkpoints: int
) -> None:
    folder = ROOT / source
    before = (folder / lock).read_bytes()
    flavor = read_flavor(folder, PYTHON, extras)
    assert len(flavor.plan) == checkpoints
    assert uv.locked(flavor) == folder / lock
    assert (folder / lock).read_bytes() == before


def test_an_extra_adds_its_requirements_and_its_corpus(flavor: Flavor) -> None:
    (flavor.folder / "requirements-more.txt").write_text("six==1.17.0\n")
    (flavor.folder / "corpus-more.jsonl").touch()
    plain, more = read_flavor(flavor.folder, PYTHON), read_flavor(flavor.folder, PYTHON, ["more"])
    assert "six" not in uv.locked(plain).read_text()
    assert "six==1.17.0" in uv.locked(more).read_text()
    assert plain.corpora == (flavor.folder / "corpus.jsonl",)
    assert more.corpora == (flavor.folder / "corpus.jsonl", flavor.folder / "corpus-more.jsonl")
    with pytest.raises(FlavorError, match=r"requirements-none\.txt can't be read"):
        read_flavor(flavor.folder, PYTHON, ["none"])


@pytest.mark.parametrize(
    ("description", "says"),
    [
        ("", "name: Field required"),
        ('name = "other"\n[[checkpoint]]\nimports = ["json"]', "its folder is called 'small'"),
        ('name = "small"\n[[checkpoint]]\nimports = []', "checkpoint.0.imports"),
        ('name = "small"\n[[checkpoint]]\nimports = ["a-b"]', "checkpoint.0.imports.0"),
        ('name = "small"\npython = "2.7"\n[[checkpoint]]\nimports = ["json"]', "is for Python 2.7"),
        ('name = "small"\nimports = []\n[[checkpoint]]\nimports = ["json"]', "imports: Extra inputs"),
        ('name = "small"\n' + '[[checkpoint]]\nimports = ["json"]\n' * 16, "at most 15"),
        ("name = ", "flavor.toml"),
    ],
)
def test_a_wrong_description_is_refused_with_the_reason(flavor: Flavor, description: str, says: str) -> None:
    (flavor.folder / "flavor.toml").write_text(description)
    with pytest.raises(FlavorError, match=says):
        read_flavor(flavor.folder, PYTHON)


def test_a_flavor_without_cloudpickle_is_refused(flavor: Flavor) -> None:
    flavor.requirements[0].write_text("numpy\n# cloudpickle\n")
    with pytest.raises(FlavorError, match="must list cloudpickle"):
        read_flavor(flavor.folder, PYTHON)


def test_changed_requirements_are_pinned_again_and_what_still_fits_keeps_its_version(flavor: Flavor) -> None:
    flavor.requirements[0].write_text("cloudpickle==3.1.1\n")
    assert "cloudpickle==3.1.1" in uv.locked(flavor).read_text()
    flavor.requirements[0].write_text("cloudpickle>=3\n")
    assert "cloudpickle==3.1.1" in uv.locked(flavor).read_text()
    flavor.requirements[0].write_text("cloudpickle>3.1.1\n")
    assert "cloudpickle==3.1.1" not in uv.locked(flavor).read_text()
    assert "--hash=sha256:" in uv.locked(flavor).read_text()


def test_what_cannot_be_resolved_is_said_and_leaves_the_old_lock(flavor: Flavor) -> None:
    lock = uv.locked(flavor)
    before = lock.read_text()
    flavor.requirements[0].write_text("cloudpickle>3,<2\n")
    with pytest.raises(FlavorError, match="uv pip compile failed"):
        uv.locked(flavor)
    assert lock.read_text() == before
    assert sorted(path.name for path in flavor.folder.iterdir()) == [
        "flavor.toml",
        "requirements.lock",
        "requirements.txt",
    ]


def test_a_wheel_with_another_hash_is_not_installed(flavor: Flavor, tmp_path: Path) -> None:
    lock = uv.locked(flavor)
    header, _, rest = lock.read_text().partition("\n")
    lock.write_text(header + "\n" + "".join(_with_other_hash(line) for line in rest.splitlines(keepends=True)))
    with pytest.raises(FlavorError, match=r"(?i)hash"):
        build_filesystem(flavor, tmp_path / "data", lambda _: None)
    assert [entry.name for entry in (tmp_path / "data" / "flavors" / "small").iterdir()] == [".lock"]


def _with_other_hash(line: str) -> str:
    head, separator, digest = line.partition("sha256:")
    return f"{head}{separator}{'0' * 64}{digest[64:]}" if separator else line


def test_a_filesystem_is_built_once_for_everybody_to_read(flavor: Flavor, tmp_path: Path) -> None:
    mask = os.umask(0o077)
    try:
        built = build_filesystem(flavor, tmp_path / "data", lambda _: None)
    finally:
        os.umask(mask)
    files = [path for path in built.folder.rglob("*") if not path.is_symlink()]
    assert [path for path in files if not path.stat().st_mode & 0o004] == []
    assert [path for path in files if path.is_dir() and not path.stat().st_mode & 0o001] == []
    assert list((built.filesystem.packages / "cloudpickle" / "__pycache__").glob("*.pyc"))
    assert list((built.filesystem.executor / "workers" / "executor" / "__pycache__").glob("*.pyc"))
    assert built.folder == tmp_path / "data" / "flavors" / "small" / built.filesystem.digest
    assert (built.folder.parent / "current").resolve() == built.folder
    assert (built.reused, measured_digest(built.filesystem)) == (False, built.filesystem.digest)

    said: list[str] = []
    again = build_filesystem(flavor, tmp_path / "data", said.append)
    assert (again.reused, again.folder, said) == (True, built.folder, [])


def test_a_filesystem_whose_files_were_changed_is_built_again(flavor: Flavor, tmp_path: Path) -> None:
    built = build_filesystem(flavor, tmp_path / "data", lambda _: None)
    with (built.filesystem.packages / "cloudpickle" / "cloudpickle.py").open("a") as file:
        file.write("# changed\n")
    assert measured_digest(built.filesystem) != built.filesystem.digest
    again = build_filesystem(flavor, tmp_path / "data", lambda _: None)
    assert (again.reused, again.folder) == (False, built.folder)
    assert measured_digest(again.filesystem) == built.filesystem.digest
    assert {entry.name for entry in built.folder.parent.iterdir()} == {".lock", built.folder.name, "current"}


def test_another_executor_makes_another_filesystem_with_the_same_packages(
    flavor: Flavor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = build_filesystem(flavor, tmp_path / "data", lambda _: None)

    def copy_changed(destination: Path) -> None:
        copy_executor(destination)
        (destination / "added.py").touch()

    from workers.pipeline import filesystem
    from workers.sandbox.filesystem import copy_executor

    monkeypatch.setattr(filesystem, "copy_executor", copy_changed)
    said: list[str] = []
    other = build_filesystem(flavor, tmp_path / "data", said.append)
    assert other.folder != built.folder
    assert said == [], "the packages were installed again"
    module = Path("packages", "cloudpickle", "cloudpickle.py")
    assert (other.folder / module).read_bytes() == (built.folder / module).read_bytes()
