"""``readie checkpoints`` and ``readie top``: what the workers have and do."""

import json
import os
import signal
import sys

import pytest
from cli_cluster import CATALOGUE, WORKER, Cluster, Run
from terminal import Terminal

from readie.stack.activity import Activity
from readie.stack.checkpoints import CheckpointOverview, GenerationOverview


def test_checkpoints_are_shown_with_who_has_them_and_who_can_not_restore_them(run: Run, cluster: Cluster) -> None:
    cluster.announce()
    cluster.announce("worker2@here")
    cluster.announce("worker3@here", catalogue=None)
    cluster.ledger.avoid("worker2@here", "checkpoint_1")
    done = run("checkpoints", "--json")
    assert done.returncode == 0
    none, generation = json.loads(done.stdout)
    assert none["generation"] is None
    assert none["workers"] == ["worker3@here"]
    assert generation.keys() == GenerationOverview.model_fields.keys()
    assert generation["workers"] == [WORKER, "worker2@here"]
    empty, large = generation["checkpoints"]
    assert large.keys() == CheckpointOverview.model_fields.keys()
    assert empty["ready"] == {WORKER: 2, "worker2@here": 2}
    assert large["restore_seconds"] == pytest.approx(0.08 + 0.001 * 120)
    assert (large["avoided"], large["ready"]) == (["worker2@here"], {})
    shown = run("checkpoints").stdout
    assert "restores fail on worker2@here" in " ".join(shown.split())
    assert "none: every call starts cold" in shown
    assert "pandas" in run("checkpoints", "checkpoint_1").stdout
    assert run("checkpoints", "checkpoint_9").returncode == 1
    assert run("checkpoints", "--worker", "worker3@here").returncode == 1
    assert len(json.loads(run("checkpoints", "--worker", "worker2@here", "--json").stdout)) == 1


def test_a_catalogue_that_redis_lost_is_named(run: Run, cluster: Cluster) -> None:
    cluster.announce()
    cluster.redis.delete(f"readie:catalogue:{CATALOGUE.digest()}")
    done = run("checkpoints")
    assert done.returncode == 1
    assert "not in Redis" in done.stdout


def test_top_adds_up_what_the_workers_tell(run: Run, cluster: Cluster) -> None:
    assert run("top", "--json").returncode == 3
    cluster.announce()
    cluster.announce("worker2@here")
    cluster.announce("old@here", counts=None)
    cluster.submit()
    done = run("top", "--json")
    assert done.returncode == 0
    now = json.loads(done.stdout)
    assert now.keys() == Activity.model_fields.keys()
    assert now["sandboxes"] == {"busy": 2, "idle": 4, "ready": 6, "created": 8}
    assert now["starts"] == {"warm": 10, "restored": 12, "cold": 14}
    assert now["ended"] == {"done": 34, "failed": 2, "cancelled": 0}
    assert (now["calls_per_second"], now["slots"], now["calls"]["pending"]) == (5.0, 192, 1)
    assert "12 restored" in run("top").stdout


@pytest.mark.parametrize("end", ["q", "\x03"])
def test_top_shows_what_changes_until_a_key_ends_it_and_leaves_the_terminal_as_it_was(
    environment: dict[str, str], cluster: Cluster, end: str
) -> None:
    cluster.announce()
    terminal = Terminal([sys.executable, "-m", "readie", "top", "--interval", "0.2"], environment)
    try:
        terminal.read_until("0 pending")
        cluster.submit()
        terminal.read_until("1 pending")
        terminal.press(end)
        if end == "\x03":  # a session of its own has no terminal that would send it
            os.kill(terminal.process.pid, signal.SIGINT)
        terminal.read_to_end()
        assert terminal.process.returncode == 0
        assert "Traceback" not in terminal.text
        assert terminal.settings() == list(terminal.before)
        assert terminal.text.rindex("\x1b[?1049l") > terminal.text.rindex("\x1b[?1049h"), "the screen is given back"
    finally:
        terminal.close()
