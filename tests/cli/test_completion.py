"""TAB in a real bash offers commands, and ids that are there."""

import subprocess
from pathlib import Path

import pytest
from cli_cluster import Cluster
from terminal import Terminal

from readie.cli import completion
from tests.local_stack import BIN


def script_for(shell: str, environment: dict[str, str]) -> str:
    """Return what the shell's start-up file gets."""
    environment = {**environment, "_READIE_COMPLETE": f"source_{shell}"}
    done = subprocess.run([BIN / "readie"], env=environment, capture_output=True, text=True, check=False)
    return done.stdout


def test_tab_completes_commands_options_and_ids(environment: dict[str, str], cluster: Cluster, tmp_path: Path) -> None:
    cluster.announce("worker1@here")
    call = cluster.submit()
    cluster.open_session("of-the-report")
    environment["PATH"] = f"{BIN}:{environment['PATH']}"
    script = script_for("bash", environment)
    (tmp_path / "rc").write_text(f"{script}\nPS1='$ '\nbind 'set enable-bracketed-paste off'\n")
    bash = Terminal(["bash", "--rcfile", str(tmp_path / "rc"), "--noprofile", "-i"], environment)
    try:
        bash.read_until(r"\$ $")
        for typed, completed in (
            ("readie dead\t", "readie dead-letters "),
            ("readie calls --sta\t", "readie calls --state "),
            (f"readie cancel {call.id[:4]}\t", f"readie cancel {call.id} "),
            ("readie logs 0\t", f"readie logs {call.id} "),
            ("readie sessions close of\t", "readie sessions close of-the-report "),
            ("readie checkpoints checkpoint_1\t", "readie checkpoints checkpoint_1 "),
            ("readie calls --worker work\t", "readie calls --worker worker1@here "),
        ):
            bash.forget()
            bash.press(typed)
            bash.read_until(completed)
            bash.press("\x15")  # empties the line
    finally:
        bash.close()


def test_the_other_shells_have_their_scripts(environment: dict[str, str]) -> None:
    for shell in ("zsh", "fish"):
        assert f"_READIE_COMPLETE=complete_{shell}" in script_for(shell, environment)


def test_a_redis_that_does_not_answer_offers_nothing_and_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch, redis_server: object
) -> None:
    import socket
    import time

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("READIE_REDIS_URL", f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        began = time.monotonic()
        assert completion.calls("") == []
        assert time.monotonic() - began < 5
    monkeypatch.setenv("READIE_REDIS_URL", "nonsense")
    assert completion.sessions("") == []
