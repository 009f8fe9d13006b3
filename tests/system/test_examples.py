"""Each example runs as it stands."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from readie.stack.programs import free_port
from tests.conftest import ROOT
from tests.local_stack import LocalStack


def start(stack: LocalStack, example: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / example), *arguments],
        env={**os.environ, "READIE_REDIS_URL": stack.redis_url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, shown = process.communicate(timeout=150)
    assert process.returncode == 0, shown
    return out, shown


def test_the_pandas_report_is_written_without_pandas_here(stack: LocalStack, tmp_path: Path) -> None:
    out, shown = output(start(stack, "pandas_report.py"))
    assert out.startswith("# installed_kib by section")
    assert out.count("\n| ") == 12
    assert "restored" in shown
    table = tmp_path / "mine.csv"
    table.write_text("section,installed_kib\na,1\na,3\nb,10\n")
    out, _ = output(start(stack, "pandas_report.py", str(table)))
    assert "| b | 1 | 10 | 10 | 71.4 % |" in out


def test_the_grid_search_finds_its_best_and_shows_its_progress(stack: LocalStack) -> None:
    out, shown = output(start(stack, "grid_search.py"))
    assert len(out.splitlines()) == 3
    assert "accuracy 0.9" in out.splitlines()[0]
    assert "9/9" in shown


def test_the_web_handler_answers(stack: LocalStack) -> None:
    port = free_port()
    server = start(stack, "web_handler.py", str(port))
    try:
        assert server.stdout is not None
        assert "listening" in server.stdout.readline()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/describe?values=1,2,3,10", timeout=60) as answer:
            assert json.load(answer)["mean"] == 4.0
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/describe?values=none", timeout=60)
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=30)
