"""A type checker knows a remote function's parameters and value."""

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "typed_program.py.txt"


def test_right_calls_pass_and_wrong_ones_are_reported(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    source = PROGRAM.read_text()
    program.write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", f"--cache-dir={tmp_path}", str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    reported = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    wrong = {number for number, line in enumerate(source.splitlines(), 1) if line.endswith("# wrong")}
    assert wrong
    assert reported == wrong, done.stdout + done.stderr
