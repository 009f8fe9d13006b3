"""The documentation builds, and says nothing of what is not there."""

import re
import subprocess
import sys
from pathlib import Path

import readie
from tests.conftest import ROOT


def test_the_site_builds_without_a_warning_and_has_every_public_name(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout + done.stderr == "", "not a single warning"
    pages = "".join((tmp_path / "api" / name / "index.html").read_text() for name in ("client", "errors"))
    shown = set(re.findall(r'id="readie\.[\w.]*?(\w+)"', pages))
    assert set(readie.__all__) - shown == set()


def test_every_public_name_that_is_no_error_has_an_example() -> None:
    public = {name: getattr(readie, name) for name in readie.__all__}
    lacking = [
        name
        for name, thing in public.items()
        if not (isinstance(thing, type) and issubclass(thing, Exception)) and "Example:" not in (thing.__doc__ or "")
    ]
    assert lacking == []


def test_every_promise_names_a_test_that_exists() -> None:
    named = re.findall(r"`(tests/\S+?\.py)(?:::(\w+))?`", (ROOT / "docs" / "client.md").read_text())
    assert len(named) > 40
    for path, test in named:
        assert f"def {test}" in (ROOT / path).read_text(), f"{path}::{test}"
