"""How a worker shares out its machine's memory."""

import os
from pathlib import Path

import pytest

from workers.settings import WorkerSettings

GIB = 1 << 30


def test_a_call_gets_its_share_of_the_memory_unless_it_says_otherwise() -> None:
    settings = WorkerSettings(memory_bytes=8 * GIB, slots=4)
    assert settings.sandbox_memory_bytes == 2 * GIB
    assert WorkerSettings(memory_bytes=8 * GIB, slots=4, sandbox_memory_bytes=GIB).sandbox_memory_bytes == GIB


def test_a_share_is_never_too_small_to_run_anything() -> None:
    assert WorkerSettings(memory_bytes=GIB, slots=1000).sandbox_memory_bytes == GIB // 4


def test_without_a_setting_some_of_the_machines_memory_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < WorkerSettings().memory_bytes < machine
    monkeypatch.setenv("READIE_MEMORY_BYTES", str(3 * GIB))
    monkeypatch.setenv("READIE_SANDBOX_MEMORY_BYTES", str(GIB))
    settings = WorkerSettings()
    assert (settings.memory_bytes, settings.sandbox_memory_bytes) == (3 * GIB, GIB)


def test_folders_are_absolute_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("READIE_DATA", "data")
    monkeypatch.setenv("READIE_RUN", "run")
    settings = WorkerSettings()
    assert (settings.data, settings.run) == (tmp_path / "data", tmp_path / "run")
