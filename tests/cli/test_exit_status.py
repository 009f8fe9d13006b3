"""What scripts rely on: --json everywhere, alone on standard output; exit statuses; one clear message for an error."""

import json
from typing import Any

import pytest
from cli_cluster import Cluster, Run
from typer.main import get_command

from readie.cli.app import app

GONE = "redis://127.0.0.1:1/0"
NEED_REDIS = (
    ("calls",),
    ("calls", "a"),
    ("checkpoints",),
    ("sessions",),
    ("sessions", "close", "a"),
    ("dead-letters",),
    ("cancel", "a"),
    ("logs", "a"),
)


def leaves() -> dict[str, Any]:
    group: Any = get_command(app)
    found = {}
    for name, command in group.commands.items():
        below = getattr(command, "commands", {})
        found |= {f"{name} {word}": one for word, one in below.items()}
        if not below or command.invoke_without_command:
            found[name] = command
    return found


def test_every_command_can_print_json_and_says_its_exit_statuses() -> None:
    commands = leaves()
    assert len(commands) > 15
    for name, command in commands.items():
        assert any("--json" in parameter.opts for parameter in command.params), name
        assert "Exit status: 0" in command.callback.__doc__, name


@pytest.mark.parametrize("command", NEED_REDIS, ids=" ".join)
def test_a_redis_that_is_gone_is_one_message_and_status_4(run: Run, command: tuple[str, ...]) -> None:
    done = run(*command, "--json", READIE_REDIS_URL=GONE)
    assert (done.returncode, done.stdout) == (4, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"readie: can't reach Redis at {GONE}")


def test_what_is_wrong_in_the_command_itself_is_status_2(run: Run, cluster: Cluster) -> None:
    for arguments in (("calls", "--limit", "0"), ("nothing",), ("logs",), ("top", "--interval", "x")):
        assert run(*arguments).returncode == 2
    done = run("calls", "--json", READIE_REDIS_URL="http://there")
    assert (done.returncode, done.stdout) == (2, "")
    assert "redis_url must start with" in done.stderr
    assert run("explain", "program.py").returncode == 2


def test_json_stands_alone_where_there_is_nothing_to_show(run: Run, cluster: Cluster) -> None:
    for arguments, empty in (
        (("calls",), []),
        (("sessions",), []),
        (("dead-letters",), []),
        (("generation", "list"), []),
        (("cancel", "no-such-call"), {"no-such-call": False}),
    ):
        done = run(*arguments, "--json")
        assert (json.loads(done.stdout), done.stderr) == (empty, "")
        assert done.returncode == (1 if arguments[0] == "cancel" else 0)
    down = json.loads(run("down", "--json").stdout)
    assert (down["ran"], down["stopped"]) == (False, [])


def test_a_reader_that_has_had_enough_is_no_error(run: Run, cluster: Cluster, environment: dict[str, str]) -> None:
    import subprocess
    import sys

    for _ in range(300):
        cluster.submit("a_function")
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m readie calls --json --limit 300 | head -1"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == ("[", "")
