"""Import measurements that are kept from one build to the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from workers.pipeline.installed import Installed
from workers.pipeline.runs import ImportRun, KnownRuns, whole

RUN = ImportRun(
    own_seconds={"pandas": 0.5, "numpy": 0.25, "json": 0.125}, megabytes=30.0, loaded=("json", "numpy", "pandas")
)
BELOW = ImportRun(after="pandas", own_seconds={"pandas.plotting": 0.1}, megabytes=1.0, loaded=("pandas.plotting",))


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
    return KnownRuns(tmp_path / "runs" / "tiny.json", Installed(tmp_path / "packages"), runsc_version)


@pytest.fixture(autouse=True)
def saved(tmp_path: Path, packages: Path) -> None:
    """A measurement of pandas, saved by an earlier build."""
    known = _known(tmp_path)
    known.put("pandas", RUN)
    known.put("pandas.plotting", BELOW)
    known.save()


def test_a_measurement_is_known_to_the_next_build(tmp_path: Path) -> None:
    assert _known(tmp_path).get("pandas") == RUN
    assert _known(tmp_path).get("pandas.plotting") == BELOW
    assert _known(tmp_path).get("numpy") is None


@pytest.mark.parametrize("name", ["pandas", "numpy"])
def test_it_is_forgotten_when_a_distribution_that_it_used_changes(tmp_path: Path, packages: Path, name: str) -> None:
    _install(packages, name, "1.1")
    known = _known(tmp_path)
    assert known.get("pandas") is None
    assert known.get("pandas.plotting") is None, "what came before it is another one now"
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


def test_a_failure_is_known_too_until_its_distribution_changes(tmp_path: Path, packages: Path) -> None:
    known = _known(tmp_path)
    known.put("six.moves", ImportRun(error="its process ended with -11"))
    known.save()
    found = _known(tmp_path).get("six.moves")
    assert found is not None
    assert found.error == "its process ended with -11"
    _install(packages, "six", "1.1")
    assert _known(tmp_path).get("six.moves") is None


def test_the_whole_of_an_import_is_its_own_and_that_of_what_came_before() -> None:
    unfit = BELOW.model_copy(update={"unfit": "its import leaves the thread 'x' running"})
    loads = whole({"pandas.plotting": unfit, "pandas": RUN, "six": ImportRun(error="it fails")})
    assert loads.keys() == {"pandas", "pandas.plotting"}
    assert loads["pandas.plotting"].loaded == {"pandas", "numpy", "json", "pandas.plotting"}
    assert (loads["pandas"].unfit, loads["pandas.plotting"].unfit) == (None, unfit.unfit)


def test_public_modules_are_those_that_users_import(tmp_path: Path) -> None:
    info = tmp_path / "other" / "big-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: big\nVersion: 1.0\n")
    files = [
        "big/__init__.py",
        "big/sub/__init__.py",
        "big/sub/fast.cpython-311-x86_64-linux-gnu.so",
        "big/_private.py",
        "big/_core/public.py",
        "big/sub/tests/test_it.py",
        "big/conftest.py",
        "big/data.json",
        "alone.py",
        "big.libs/libx.so.1",
        "bin/big-tool",
    ]
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in files))
    installed = Installed(tmp_path / "other")
    assert installed.public_modules() == {"big", "big.sub", "big.sub.fast", "alone"}
    assert "big._core.public" in installed.modules
    assert installed.owners["big"] == {"big"}
