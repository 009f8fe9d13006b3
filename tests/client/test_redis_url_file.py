"""The URL of Redis, which has a password in it, may come from a file."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from readie.settings import Settings


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the environment names."""
    monkeypatch.delenv("READIE_REDIS_URL", raising=False)
    monkeypatch.setenv("READIE_REDIS_URL_FILE", str(tmp_path / "url"))
    return tmp_path / "url"


def test_it_is_read_unless_a_url_is_set(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("redis://:secret@redis:6379/0\n")
    assert Settings().redis_url == "redis://:secret@redis:6379/0"
    monkeypatch.setenv("READIE_REDIS_URL", "redis://elsewhere/1")
    assert Settings().redis_url == "redis://elsewhere/1"


def test_what_is_wrong_with_it_is_said(file: Path) -> None:
    with pytest.raises(ValidationError, match=r"can't be read.*No such file"):
        Settings()
    file.write_text("\n")
    with pytest.raises(ValidationError, match="is empty"):
        Settings()
    file.write_text("secret@redis")
    with pytest.raises(ValidationError, match="must start with redis://"):
        Settings()
