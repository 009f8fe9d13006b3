"""The code blocks of the README and the docs, and how each is tried.

==========  ===============================================================================================
language    what is done with it
==========  ===============================================================================================
python      run, in the order of the page, all blocks of a page in one process (``run_page.py``)
sh          run, but for commands that other tests run (``ELSEWHERE``); ``CALL`` and ``ID`` stand for what is there
text        output or a picture: only what follows ``$ `` is run
toml, yaml, parsed
json
==========  ===============================================================================================

What can't run on a machine that has only this checkout stands below a line ``<!-- elsewhere: why -->``: it is parsed,
and the files of this checkout that it names must exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

ELSEWHERE = {
    "make setup": ".ci/run",
    "make check": ".ci/run",
    "make test": ".ci/run",
    "make test-compose": ".ci/run",
    "make demo": "tests/system/test_documented_code.py",
    "make generation": "tests/pipeline/test_make_generation.py",
    "make chaos": "tests/chaos/test_short_run.py",
    "docker compose": "tests/compose/test_compose.py",
    # By `make demo`.
    "readie up -d": "scripts/demo",
    "python examples/quickstart.py": "scripts/demo",
    "readie down": "scripts/demo",
}
"""Commands that something else runs in continuous integration: what does."""

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\S*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- elsewhere: (.+) -->\s*\Z")


@dataclass(frozen=True)
class Block:
    """One code block."""

    page: Path
    line: int
    """Of its first line of code."""
    language: str
    text: str
    elsewhere: str
    """Why it can't run on a machine that has only this checkout; empty where it can."""

    @property
    def where(self) -> str:
        """Where it is, as tools print it."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Return all pages in which there may be code."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *ROOT.glob("SECURITY.md")]


def blocks(page: Path) -> list[Block]:
    """Return the code blocks of a page."""
    content = page.read_text()
    found = []
    for match in _FENCE.finditer(content):
        before = content[: match.start()]
        mark = _MARK.search(before)
        indent = match["indent"]
        text = "".join(line.removeprefix(indent) for line in match["text"].splitlines(keepends=True))
        found.append(Block(page, before.count("\n") + 2, match["language"], text, mark[1] if mark else ""))
    return found


def script(block: Block) -> str:
    """Return what is to be run of a block of commands."""
    lines = block.text.splitlines()
    if block.language == "text":
        lines = [line.removeprefix("$ ") if line.startswith("$ ") else "" for line in lines]
    # A machine on which all works may still have a warning.
    lines = [line.removeprefix(".venv/bin/").replace("readie doctor", "readie doctor || [ $? = 3 ]") for line in lines]
    return "\n".join("" if elsewhere(line) else line for line in lines)


def elsewhere(command: str) -> str | None:
    """Return what runs a command instead, ``None``: nothing does."""
    command = command.removeprefix(".venv/bin/") + " "
    known = sorted(ELSEWHERE, key=len, reverse=True)
    return next((ELSEWHERE[name] for name in known if command.startswith(f"{name} ")), None)


def compose_commands() -> Iterator[list[str]]:
    """Yield the arguments of each ``docker compose`` command of all pages."""
    for page in pages():
        for block in blocks(page):
            if block.language == "sh" and not block.elsewhere:
                for line in block.text.splitlines():
                    if line.startswith("docker compose "):
                        yield line.partition("#")[0].split()[2:]
