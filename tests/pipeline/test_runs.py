"""Import measurements that are kept from one build to the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from workers.pipeline.runs import ImportRun, KnownRuns

RUN = ImportRun({"pandas": 0.5, "numpy": 0.25, "json": 0.125}, 30.0, frozenset({"pandas", "numpy", "json"}))


def _install(packages: Path, name: str, version: str) -> None:
    for old in packages.glob(f"{name}-*.dist-info"):
        for file in old.iterdir():
            file.unlink()
        old.rmdir()
    info = packages / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"{name}/__init__.py,,\n{info.name}/METADATA,,\n")


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder in which pandas, numpy and six are installed."""
    folder = tmp_path / "packages"
    for name in ("pandas", "numpy", "six"):
        _install(folder, name, "1.0")
    return folder


def _known(tmp_path: Path, runsc_version: str = "1") -> KnownRuns:
    return KnownRuns(tmp_path / "runs" / "tiny.json", tmp_path / "packages", runsc_version)


@pytest.fixture(autouse=True)
def saved(tmp_path: Path, packages: Path) -> None:
    """A measurement of pandas, saved by an earlier build."""
    known = _known(tmp_path)
    known.put("pandas", RUN)
    known.save()


def test_a_measurement_is_known_to_the_next_build(tmp_path: Path) -> None:
    assert _known(tmp_path).get("pandas") == RUN
    assert _known(tmp_path).get("numpy") is None


@pytest.mark.parametrize("name", ["pandas", "numpy"])
def test_it_is_forgotten_when_a_distribution_that_it_used_changes(tmp_path: Path, packages: Path, name: str) -> None:
    _install(packages, name, "1.1")
    known = _known(tmp_path)
    assert known.get("pandas") is None
    known.save()
    _install(packages, name, "1.0")
    assert _known(tmp_path).get("pandas") is None


def test_it_outlives_a_change_of_what_it_did_not_use(tmp_path: Path, packages: Path) -> None:
    _install(packages, "six", "1.1")
    assert _known(tmp_path).get("pandas") == RUN


def test_it_does_not_hold_for_another_runsc(tmp_path: Path) -> None:
    assert _known(tmp_path, runsc_version="2").get("pandas") is None


def test_a_damaged_file_only_costs_time(tmp_path: Path) -> None:
    (tmp_path / "runs" / "tiny.json").write_text('{"environment": ')
    known = _known(tmp_path)
    assert known.get("pandas") is None
    known.put("pandas", RUN)
    known.save()
    assert _known(tmp_path).get("pandas") == RUN
