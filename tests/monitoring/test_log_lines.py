"""Log lines can be read by people or by programs, tell which call they are about, and nothing that was sent with it."""

import base64
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import readie
from readie import remote
from readie.connection import without_password
from readie.monitoring.log_lines import _Json, _Text, about_call
from tests.local_stack import eventually
from tests.monitoring.conftest import Observed

SECRET = "wednesdays-password-of-the-caller"


@remote
def give_back(value: object, filling: bytes = b"") -> object:
    print("printed", value)
    return value


@remote
def fail(value: object) -> None:
    raise ValueError(value)


def lines(stack: Observed, part: str) -> list[dict[str, Any]]:
    """Return a part's log; every line must be an object."""
    return [json.loads(line) for line in (stack.home / "logs" / f"{part}.log").read_text().splitlines()]


def forms(secret: str) -> list[str]:
    """Return what to look for: the secret, and what it is in the middle of base64."""
    encoded = [base64.b64encode(b"x" * shift + secret.encode()).decode() for shift in range(3)]
    return [secret, *(text[4:-4] for text in encoded)]


@pytest.mark.sandbox
def test_every_line_about_a_call_has_its_id_and_none_has_what_it_was_given(observed: Observed) -> None:
    secretive = give_back.options(env={"TOKEN": SECRET})
    calls = [secretive.spawn(SECRET), secretive.spawn(SECRET, os.urandom(20_000))]
    with readie.session():
        calls += [give_back.spawn(SECRET), give_back.spawn(SECRET)]
        assert [call.result(timeout=60) for call in calls] == [SECRET] * 4
    failing = fail.spawn(SECRET)
    with pytest.raises(ValueError, match=SECRET):
        failing.result(timeout=60)
    for call in [*calls, failing]:
        for part in ("router", "worker1"):
            eventually(lambda: any(line.get("call") == call.id for line in lines(observed, part)), f"{part} logs it")  # noqa: B023
            about = [line for line in lines(observed, part) if call.id in json.dumps(line)]
            assert [line for line in about if line.get("call") != call.id] == []
    placed = [line for line in lines(observed, "router") if line.get("call") == calls[0].id]
    assert {"time", "level", "logger", "message", "call", "worker", "attempt"} <= placed[0].keys()
    assert lines(observed, "supervisor")
    for log in (observed.home / "logs").iterdir():
        text = log.read_text()
        assert [form for form in forms(SECRET) if form in text] == [], log.name


def test_a_line_is_the_same_as_text_and_as_json() -> None:
    record = logging.LogRecord(
        "router", logging.INFO, "", 0, "placed: call=%s at=%.1f %d%% of %s", ("c1", 0.5, 7, 8), None
    )
    assert _Text().format(record).endswith(" INFO router: placed: call=c1 at=0.5 7% of 8")
    line = json.loads(_Json().format(record))
    assert (line["call"], line["at"], line["message"]) == ("c1", 0.5, "placed: call=c1 at=0.5 7% of 8")
    other = logging.LogRecord("workers", logging.INFO, "", 0, "late", (), None)
    with about_call("c2"):
        assert _Text().format(other).endswith(" late call=c2")
        assert json.loads(_Json().format(other))["call"] == "c2"
    assert "call" not in json.loads(_Json().format(other))
    for call_id in ("0" * 32, f"alice.{'0' * 32}"):
        celerys = logging.LogRecord("celery.worker.strategy", 20, "", 0, "Task readie.execute[%s]", (call_id,), None)
        assert json.loads(_Json().format(celerys))["call"] == call_id


@pytest.mark.parametrize("place", ["redis://user:{}@host/0", "rediss://:{}@host", "sentinel://user:{}@host/0"])
@pytest.mark.parametrize("odd", ["/", "?", "#", "["])
def test_a_password_that_ends_a_url_too_soon_is_refused_and_not_shown(place: str, odd: str) -> None:
    for start in ("12", "pass"):
        with pytest.raises(readie.ConfigurationError, match="In a password, write / as") as refused:
            readie.Client(redis_url=place.format(f"{start}{odd}{SECRET}"))
        assert SECRET not in str(refused.value)
        assert f"'{start}'" not in str(refused.value)


@pytest.mark.parametrize("program", ["router", "workers"])
def test_a_wrong_setting_is_said_without_the_password_beside_it(program: str, tmp_path: Path) -> None:
    environment = {**os.environ, "READIE_REDIS_URL": f"http://:{SECRET}@127.0.0.1/", "READIE_RUN": str(tmp_path)}
    command = [sys.executable, "-m", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode not in {0, 1}
    assert "redis_url must start with redis://" in done.stderr
    assert SECRET not in done.stdout + done.stderr


def test_a_url_is_shown_without_its_password_wherever_that_is() -> None:
    for url in (f"redis://user:{SECRET}@host:1/0", f"redis://host:1/0?db=2&password={SECRET}&protocol=3"):
        assert SECRET not in without_password(url)
        assert "host:1/0" in without_password(url)
    assert without_password("redis://host:1/0?db=2") == "redis://host:1/0?db=2"
