"""Which of the user's modules travel: those that are imported anywhere, and nothing that is installed."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from readie.project import travelling


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Write modules of a project."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(**sources: str) -> None:
        for name, source in sources.items():
            path = tmp_path / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)

    return write


def test_imports_are_followed_wherever_they_stand(project: Callable[..., None]) -> None:
    project(
        top="import json\nfrom inner_pack.one import thing\n",
        inner_pack__one="def f():\n    from .. import nothing\n    from . import two\n    import numpy.linalg\n",
        inner_pack__two="try:\n    import pandas\nexcept ImportError:\n    import three\n",
        three="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import four\nelse:\n    import five\n",
        four="",
        five="",
    )
    found = travelling(["top.thing"])
    assert found.modules == ("five", "inner_pack", "inner_pack.one", "inner_pack.two", "three", "top")
    assert found.imports == ("pandas",), "what only functions import is no need of the import"


def test_nothing_that_is_installed_travels_unless_it_is_named() -> None:
    assert travelling(["cloudpickle.dumps", "redis", "json", "readie.remote", "__main__.f"]).modules == ()
    assert "cloudpickle" in travelling([], include=["cloudpickle"]).modules
    assert travelling(["redis"], include=["cloudpickle.cloudpickle"]).modules == ("cloudpickle.cloudpickle",)


def test_modules_can_be_named_and_forbidden(project: Callable[..., None]) -> None:
    project(pack__a="import other", pack__b="", pack__deep__c="", other="")
    assert travelling([], include=["pack"]).modules == (
        "other",
        "pack",
        "pack.a",
        "pack.b",
        "pack.deep",
        "pack.deep.c",
    )
    assert travelling([], include=["pack"], exclude=["pack.deep", "other"]).modules == ("pack", "pack.a", "pack.b")
    assert travelling(["pack.a"], exclude=["pack"]).modules == ()


def test_no_code_of_a_module_runs_here(project: Callable[..., None]) -> None:
    project(explosive="raise SystemExit('it ran')", broken="this is no Python")
    assert travelling(["explosive", "broken"]).modules == ("broken", "explosive")
    assert "explosive" not in sys.modules


def test_a_file_that_changes_travels_as_it_is_now(project: Callable[..., None], tmp_path: Path) -> None:
    project(mine="VALUE = 1")
    before = travelling(["mine"])
    (tmp_path / "mine.py").write_text("import later\nVALUE = 2")
    project(later="")
    after = travelling(["mine"])
    assert before.packed != after.packed
    assert after.modules == ("later", "mine")
    assert travelling(["mine"]) == after
