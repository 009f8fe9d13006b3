"""Checkpoints that keep failing, with the clock given."""

from __future__ import annotations

from workers.sandbox.quarantine import FAILURES, SECONDS, Quarantine


def fail(quarantine: Quarantine, checkpoint_id: str | None, times: int, now: float = 0.0) -> None:
    for _ in range(times):
        quarantine.failed(checkpoint_id, "the image is broken", now)


def test_a_checkpoint_is_left_alone_after_failures_in_a_row_and_tried_again_after_a_while() -> None:
    quarantine = Quarantine()
    fail(quarantine, "checkpoint_1", FAILURES - 1)
    assert quarantine.why("checkpoint_1", 0.0) is None
    fail(quarantine, "checkpoint_1", 1, now=10.0)
    why = quarantine.why("checkpoint_1", 10.0)
    assert why is not None
    assert "the image is broken" in why
    assert f"{FAILURES} restores" in why
    assert quarantine.why("checkpoint_1", 10.0 + SECONDS) is None


def test_the_next_failure_after_a_quarantine_begins_another() -> None:
    quarantine = Quarantine()
    fail(quarantine, "checkpoint_1", FAILURES)
    fail(quarantine, "checkpoint_1", 1, now=SECONDS)
    assert quarantine.why("checkpoint_1", SECONDS + 1) is not None


def test_a_success_ends_the_row() -> None:
    quarantine = Quarantine()
    fail(quarantine, "checkpoint_1", FAILURES - 1)
    quarantine.succeeded("checkpoint_1")
    fail(quarantine, "checkpoint_1", FAILURES - 1)
    assert quarantine.why("checkpoint_1", 0.0) is None


def test_one_checkpoints_failures_are_no_others() -> None:
    quarantine = Quarantine()
    fail(quarantine, "checkpoint_1", FAILURES)
    fail(quarantine, None, FAILURES - 1)
    assert quarantine.why("checkpoint_2", 0.0) is None
    assert quarantine.why(None, 0.0) is None
