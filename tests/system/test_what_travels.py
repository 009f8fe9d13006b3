"""Functions and what they need reach the sandbox from a script, a project, the REPL and a notebook."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.local_stack import LocalStack

PROJECT = Path(__file__).parent / "project"


def client_environment(stack: LocalStack) -> dict[str, str]:
    return {**os.environ, "READIE_REDIS_URL": stack.redis_url, "PYTHONWARNINGS": "ignore"}


@pytest.fixture(scope="module")
def results(stack: LocalStack) -> dict[str, Any]:
    """What a script of a project got back; see ``project/main.py``."""
    done = subprocess.run(
        [sys.executable, "main.py"],
        cwd=PROJECT,
        env=client_environment(stack),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("helpers", [120, False, [6], 32]),
        ("closure", 42),
        ("lambda", 42),
        ("partial", 1024),
        ("main classes", [True, True, True]),
        ("class method", True),
        ("main exception", [True, True, "it is"]),
        ("group", ["inner", "a note", "OSError"]),
        ("group rest", True),
        ("shopping", [14, 14, 2]),
        ("late", "late"),
        ("include", "late"),
        ("own classes", [True, True, True]),
        ("own exception", ["milk is sold out", 1999, "milk"]),
        ("environment", ["hello", "/elsewhere"]),
        ("tasks", [55, 53]),
    ],
)
def test_a_script_gets_back_what_it_would_have_got_locally(results: dict[str, Any], what: str, value: object) -> None:
    assert results[what] == value


def test_own_modules_that_travel_are_listed_and_can_be_held_back(results: dict[str, Any]) -> None:
    assert results["shopping travels"] == ["shop", "shop.prices", "shop.stock"]
    assert results["shopping shown"]
    assert "shop.secret" not in results["exclude travels"]


def test_what_own_modules_import_is_a_hint(results: dict[str, Any]) -> None:
    assert "cloudpickle" in results["shopping hints"]
    assert not any("type_checkers" in name for name in results["shopping hints"])


def test_a_module_that_is_not_there_is_named_with_flavor_and_fix(results: dict[str, Any]) -> None:
    name, message = results["missing package"]
    assert name == "redis"
    for part in ("'redis'", "flavor 'default'", "requirements.txt", "make generation", "packages=['redis']"):
        assert part in message
    assert "include_modules=['shop']" in results["excluded"]


def test_functions_typed_into_the_prompt_travel(stack: LocalStack) -> None:
    lines = [
        "from readie import remote",
        "def helper(n): return n + 1",
        "",
        "class Pair:",
        "    def __init__(self, a): self.a = a",
        "",
        "@remote",
        "def f(n): return Pair(helper(n))",
        "",
        "print('value', f(41).a, type(f(1)) is Pair)",
    ]
    done = subprocess.run(
        [sys.executable, "-i", "-q"],
        input="\n".join(lines) + "\n",
        env=client_environment(stack),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "value 42 True" in done.stdout, done.stdout + done.stderr


def test_a_notebook_runs_in_a_real_kernel(stack: LocalStack, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    for name, value in client_environment(stack).items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(ROOT / "examples" / "notebook.ipynb", as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    outputs = json.dumps([cell.get("outputs", []) for cell in notebook.cells])
    assert "restored" in outputs
    assert notebook.cells[-1].outputs, "the last cell shows something"
