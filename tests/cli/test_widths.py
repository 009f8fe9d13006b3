"""Every command fits the terminal, whatever the names in it, and loses nothing that the next command needs."""

from pathlib import Path

import pytest
from cli_cluster import LONG, WORKER, Cluster
from terminal import run_all

from readie.ledger import Ledger
from readie.protocol.dead_letter import DeadLetter
from readie.protocol.envelope import CallState

FUNCTION = "a_project.with_modules.that_are_deep.Class.a_method_with_a_long_name"
PROGRAM = "def f(value):\n    import numpy\n    return value\n"


@pytest.fixture
def commands(cluster: Cluster, tmp_path: Path) -> list[list[str]]:
    """Every command that ends by itself, on a cluster full of long names."""
    cluster.announce()
    cluster.announce(f"worker2@{LONG}", catalogue=None)
    cluster.ledger.avoid(WORKER, "checkpoint_1")
    failed = cluster.end(cluster.submit(FUNCTION, client="c" * 64), CallState.FAILED)
    cluster.begin(cluster.submit(FUNCTION))
    waiting = cluster.submit(FUNCTION)
    cluster.park(waiting, f"the flavor's only worker {WORKER} has no room for 64.0 GiB of memory")
    cluster.open_session("z" * 64)
    cluster.open_session("0" * 32)
    Ledger(cluster.redis).bury(DeadLetter.of(b"x" * 3000, "q" * 100, "no reason that is short " * 10))
    (tmp_path / "program.py").write_text(PROGRAM)
    return [
        ["status"],
        ["top", "--once"],
        ["calls"],
        ["calls", failed.id],
        ["calls", waiting.id],
        ["calls", "no-such-call"],
        ["checkpoints"],
        ["checkpoints", "checkpoint_1"],
        ["sessions"],
        ["sessions", "close", "n" * 64],
        ["sessions", "close", "z" * 64],
        ["dead-letters"],
        ["dead-letters", "--clear"],
        ["cancel", waiting.id, failed.id],
        ["logs", waiting.id],
        ["logs", "no-such-call"],
        ["explain", f"{tmp_path}/program.py:g"],
        ["explain", f"{tmp_path}/program.py:f"],
        ["run", f"{tmp_path}/missing/{'d' * 80}/program.py:f"],
        ["generation", "list"],
        ["generation", "show"],
        ["generation", "prune"],
        ["acl", "--write", f"{tmp_path}/{'u' * 80}", "--passwords", f"{tmp_path}/passwords"],
        ["acl", "--client", "c" * 99, "--write", f"{tmp_path}/users", "--passwords", f"{tmp_path}/passwords"],
        ["doctor"],
        ["up", "-d", "--workers", "0"],
        ["up", "-d"],
        ["status"],
        ["down"],
        ["down"],
    ]


@pytest.mark.parametrize("columns", [80, 60])
def test_nothing_is_wider_than_the_terminal(
    commands: list[list[str]], environment: dict[str, str], columns: int
) -> None:
    environment |= {"READIE_RUNSC": "/nowhere/runsc", "READIE_HOME": f"{environment['READIE_HOME']}/{'h' * 80}"}
    shown = run_all(commands, environment, columns)
    for command, (status, text) in zip(commands, shown, strict=True):
        wide = [line for line in text.splitlines() if len(line) > columns]
        assert wide == [], f"readie {' '.join(command)}"
        assert "Traceback (most recent call last):\n  File" not in text
        assert text.strip() or command[0] == "logs", f"readie {' '.join(command)} says nothing"
        assert status in {0, 1, 2, 3, 4}
    up, again, _, down, nothing = (status for status, _ in shown[-5:])
    assert (up, again, down, nothing) == (0, 0, 0, 0)
    text_of = dict(zip(map(" ".join, commands), (text for _, text in shown), strict=True))
    if columns == 80:
        ids = [word for word in text_of["calls"].split() if len(word) == 32 and word.isalnum()]
        assert len(ids) == 3, "call ids are whole"
        assert "0" * 32 in text_of["sessions"].split()
    assert text_of["sessions"].count("z") == 64, "a long id is broken, not cut"
    assert "…" not in text_of["status"] + text_of["calls"] + text_of["checkpoints"] + text_of["sessions"]


def test_help_of_every_command_fits(environment: dict[str, str]) -> None:
    from typer.main import get_command

    from readie.cli.app import app

    group = get_command(app)
    commands = [["--help"]]
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        commands += [[name, "--help"], *([name, below, "--help"] for below in getattr(command, "commands", ()))]
    for command, (status, text) in zip(commands, run_all(commands, environment, 80), strict=True):
        assert status == 0
        assert max(map(len, text.splitlines())) <= 80, command
