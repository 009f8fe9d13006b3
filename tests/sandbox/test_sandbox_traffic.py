"""Work for later gives way to calls."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from workers.sandbox import traffic as traffic_module
from workers.sandbox.traffic import Traffic, cores_are_taken

SECONDS = 30.0
A_MOMENT = 0.1


class Waiting:
    """Somebody who gives way, in a thread."""

    def __init__(self, traffic: Traffic, *, to_running: bool = False) -> None:
        self.done = threading.Event()
        self._thread = threading.Thread(target=self._wait, args=(traffic, to_running))
        self._thread.start()

    def _wait(self, traffic: Traffic, to_running: bool) -> None:
        traffic.give_way(to_running=to_running)
        self.done.set()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Traffic:
    """Traffic to which others give way for long."""
    monkeypatch.setattr(traffic_module, "_LONGEST_WAIT_SECONDS", SECONDS)
    return Traffic()


def test_nobody_waits_without_calls() -> None:
    Traffic().give_way(to_running=True)


def test_a_start_is_waited_for(patient: Traffic) -> None:
    with patient.starting(), patient.starting():
        waiting = Waiting(patient)
        assert not waiting.done.wait(A_MOMENT)
    assert waiting.done.wait(SECONDS)


def test_a_start_is_not_waited_for_without_end() -> None:
    traffic = Traffic()
    with traffic.starting():
        assert Waiting(traffic).done.wait(SECONDS)


def test_calls_that_come_one_after_the_other_are_waited_for(patient: Traffic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic_module, "_SHORT_CALL_SECONDS", SECONDS)
    patient.came()
    waiting = Waiting(patient)
    assert not waiting.done.wait(A_MOMENT)
    patient.stop()
    assert waiting.done.wait(SECONDS)


@pytest.mark.parametrize(("runnable", "waits"), [(1, False), (1000, True)])
def test_running_calls_are_waited_for_while_they_use_the_cores(
    patient: Traffic, monkeypatch: pytest.MonkeyPatch, runnable: int, waits: bool
) -> None:
    monkeypatch.setattr(traffic_module, "cores_are_taken", lambda: runnable > 4)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    patient.begun()
    assert Waiting(patient, to_running=True).done.wait(SECONDS), "a core is free for sure"
    patient.begun()
    assert Waiting(patient).done.wait(SECONDS)
    waiting = Waiting(patient, to_running=True)
    if waits:
        assert not waiting.done.wait(A_MOMENT)
        patient.ended()
    assert waiting.done.wait(SECONDS)


@pytest.mark.parametrize(("runnable", "taken"), [(1, False), (4, False), (5, True), (90, True)])
def test_cores_are_taken_when_others_could_use_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runnable: int, taken: bool
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    (tmp_path / "loadavg").write_text(f"9.41 8.20 7.33 {runnable}/811 12345\n")
    assert cores_are_taken(tmp_path / "loadavg") is taken
    assert cores_are_taken() in {True, False}
