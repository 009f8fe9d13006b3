"""The fault suite's short form; ``make chaos`` runs it for longer."""

import random
from pathlib import Path

from tests.chaos.suite import Run, summary

SECONDS = 40


def test_every_call_ends_once_whatever_is_killed(data_folder: Path) -> None:
    said: list[str] = []
    result = Run(random.randrange(10**6), data_folder, SECONDS, say=said.append, keep=None).run()
    assert not result.findings, "\n".join([summary(result), *said])
    assert len(result.calls) > SECONDS
    assert result.faults.total() > SECONDS / 20
