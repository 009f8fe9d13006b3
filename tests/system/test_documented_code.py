"""Every code block of the README and the docs works as it stands there; see ``tests/system/code_blocks.py``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import readie
from readie import Call
from tests.conftest import ROOT
from tests.local_stack import BIN, LocalStack, eventually
from tests.system.code_blocks import Block, blocks, pages, script

RUN: set[str] = set()
"""Commands that were run."""

# What the examples of docstrings refer to.
OF_DOCSTRINGS = """
import os
import readie
from readie import remote
rows, shapes, call_id = [{"a": 1}, {"a": 3}], [1, 2], None
@remote
def mean(given=None): return sum(row["a"] for row in given or kept) / 2
@remote
def median(given): return sorted(row["a"] for row in given)[len(given) // 2]
@remote
def load(given):
    global kept
    kept = given
@remote
def areas(shape): return shape * shape
@remote
def read_lines(name):
    yield name
class pool:
    close = staticmethod(int)
class generator:
    seed = staticmethod(len)
call = mean.spawn(rows)
call_id = call.id
readie.session("of-the-report").run("kept = [{'a': 1}]")
"""


@readie.remote
def sleep() -> None:
    """Run for ten minutes."""
    import time

    time.sleep(600)


def with_code(*languages: str) -> list[object]:
    """Return the pages with blocks of which something is to be run."""
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages() if to_run(page, *languages)]


def to_run(page: Path, *languages: str) -> list[Block]:
    found = [block for block in blocks(page) if block.language in languages and not block.elsewhere]
    return [block for block in found if block.language == "python" or script(block).strip()]


def run_python(stack: LocalStack, cells: list[tuple[str, str]], folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, Path(__file__).parent / "run_page.py"],
        input=json.dumps(cells),
        env=stack.environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", with_code("python"))
def test_the_python_of_a_page_runs(stack: LocalStack, page: Path, tmp_path: Path) -> None:
    run_python(stack, [(block.where, block.text) for block in to_run(page, "python")], tmp_path)


def test_the_examples_of_the_reference_run(stack: LocalStack, tmp_path: Path) -> None:
    cells = [("what they refer to", OF_DOCSTRINGS)]
    for name in readie.__all__:
        documentation = getattr(readie, name).__doc__ or ""
        for example in re.findall(r"```python\n(.*?)```", documentation, re.DOTALL):
            lines = example.splitlines(keepends=True)
            indent = len(lines[0]) - len(lines[0].lstrip())
            text = "".join(line[indent:] or "\n" for line in lines)
            text = text.replace("redis://cluster:6379/0", stack.redis_url).replace('"0f9b..."', "call.id")
            cells.append((f"readie.{name}", text))
    assert len(cells) > 10
    # Last what changes what the others use.
    cells.sort(key=lambda cell: cell[1] != OF_DOCSTRINGS and ("configure(" in cell[1] or "def mean" in cell[1]))
    run_python(stack, cells, tmp_path)


@pytest.fixture
def running(stack: LocalStack) -> Iterator[Call[None]]:
    """A call that runs until it is cancelled."""
    call = sleep.spawn()
    eventually(lambda: call.status().state == "running", "it runs")
    yield call
    call.cancel()


@pytest.mark.parametrize("page", with_code("sh", "text"))
def test_the_commands_of_a_page_run(stack: LocalStack, running: Call[None], page: Path) -> None:
    current = Path(stack.environment["READIE_DATA"]) / "generations" / "default" / "current"
    stands_for = {"CALL": running.id, "ID": current.resolve().name}
    for block in to_run(page, "sh", "text"):
        # What several pages have is run once.
        lines = [line for line in script(block).splitlines() if line.partition("#")[0].strip() not in RUN]
        RUN.update(line.partition("#")[0].strip() for line in lines)
        text = re.sub(r"\b(CALL|ID)\b", lambda name: stands_for[name[1]], "\n".join(lines))
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            env={**stack.environment, "PATH": f"{BIN}:{stack.environment['PATH']}"},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, f"{block.where}\n{text}\n{done.stdout}{done.stderr}"


def test_make_demo_runs(data_folder: Path) -> None:
    """On the data of the tests, which is of the same flavor, where the demo has none of its own yet."""
    demo_data = data_folder.parent / "demo-data"
    lent = not demo_data.exists()
    if lent:
        demo_data.symlink_to(data_folder.name)
    try:
        done = subprocess.run(["make", "demo"], cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    finally:
        if lent:
            demo_data.unlink()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "restored" in done.stdout
