"""The documentation builds, and says nothing of what is not there."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import readie
from tests.conftest import ROOT
from tests.system.code_blocks import ELSEWHERE, blocks, elsewhere, pages

LANGUAGES = {"python", "sh", "text", "toml", "yaml", "json", "ini"}
PARSE = {"toml": tomllib.loads, "yaml": lambda text: list(yaml.safe_load_all(text)), "json": json.loads}
ALL_BLOCKS = [block for page in pages() for block in blocks(page)]


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


@pytest.mark.parametrize(("page", "least"), [("docs/client.md", 40), ("SECURITY.md", 20)])
def test_every_promise_names_a_test_that_exists(page: str, least: int) -> None:
    named = re.findall(r"`(tests/\S+?\.py)(?:::(\w+))?`", (ROOT / page).read_text())
    assert len(named) > least
    for path, test in named:
        assert f"def {test}" in (ROOT / path).read_text(), f"{path}::{test}"


def test_every_block_says_what_it_is() -> None:
    assert [block.where for block in ALL_BLOCKS if block.language not in LANGUAGES] == []


def test_what_is_only_data_can_be_parsed() -> None:
    parsed = [PARSE[block.language](block.text) for block in ALL_BLOCKS if block.language in PARSE]
    assert all(parsed)


def test_what_can_not_run_here_can_be_parsed_and_names_files_that_exist() -> None:
    for block in ALL_BLOCKS:
        if not block.elsewhere:
            continue
        if block.language == "sh":
            done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{block.where}: {done.stderr}"
        for name in re.findall(r"(?<![\w/.-])(?:deploy|examples|docs|scripts)/[\w./-]+", block.text):
            assert (ROOT / name).exists(), f"{block.where}: {name}"


def test_commands_that_run_elsewhere_are_run_there() -> None:
    """That is: what continuous integration runs exists, and make knows its targets."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for command, runner in ELSEWHERE.items():
        runs = (ROOT / runner).read_text().replace('"$bin/', "").replace('"', "")
        # Every target sets up what it needs.
        assert runner.endswith(".py") or command in runs or command == "make setup"
        assert not command.startswith("make ") or command.removeprefix("make ") in targets
    lines = [
        line
        for block in ALL_BLOCKS
        if block.language == "sh" and not block.elsewhere
        for line in block.text.splitlines()
    ]
    unknown = [line for line in lines if line.startswith(("make ", "docker ")) and not elsewhere(line)]
    assert unknown == []


def test_every_page_has_its_place_in_the_reading_order() -> None:
    def listed(entries: list[object]) -> Iterator[str]:
        for entry in entries:
            for item in entry.values() if isinstance(entry, dict) else [entry]:
                yield from listed(item) if isinstance(item, list) else [str(item)]

    order = list(listed(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    docs = ROOT / "docs"
    assert sorted(order) == sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md"))


def test_every_text_in_the_tables_of_operations_is_one_that_the_code_says() -> None:
    said = list(texts_of_the_code())
    rows = [line for line in (ROOT / "docs" / "operations.md").read_text().splitlines() if line.startswith("| ")]
    quoted = [text for row in rows for text in re.findall(r"`([^`]+)`", row.split(" | ")[0]) if is_message(text)]
    assert len(quoted) > 25
    # What stands between the parts that differ, all of one message and in this order.
    parts = [[re.escape(part.strip()) for part in text.split("…") if part.strip()] for text in quoted]
    assert [
        text
        for text, of_it in zip(quoted, parts, strict=True)
        if not any(map(re.compile(".*".join(of_it), re.DOTALL).search, said))
    ] == []


def is_message(text: str) -> bool:
    """Whether a quoted text is said by the code, and not the name of an error, of a method or of a command."""
    return " " in text and not text.startswith("readie ")


def texts_of_the_code() -> Iterator[str]:
    """Yield every text in the code, ``…`` in the place of what is filled in."""
    for package in ("readie", "router", "workers"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value
                elif isinstance(node, ast.JoinedStr):
                    yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
