"""What a caller sees when Redis is not there."""

import os
import signal
import time
from pathlib import Path

import pytest

from readie.client import Client
from readie.errors import ClusterUnavailableError, ConfigurationError
from readie.hints import Hints
from readie.options import Options
from readie.stack.programs import free_port
from tests.conftest import RedisServer

LIMIT_SECONDS = 5
"""The documented bound: it must be clear within this time that Redis can't be reached."""


def submit(client: Client) -> object:
    return client.submit(lambda: None, (), {}, Options(), lambda: Hints(()))


def test_a_refused_connection_names_the_url_without_its_password() -> None:
    client = Client(redis_url=f"redis://reader:hush@127.0.0.1:{(port := free_port())}/3")
    began = time.monotonic()
    with pytest.raises(ClusterUnavailableError) as caught:
        submit(client)
    assert time.monotonic() - began < LIMIT_SECONDS
    assert f"redis://reader:***@127.0.0.1:{port}/3" in str(caught.value)
    assert "hush" not in str(caught.value)
    assert "readie up" in str(caught.value)
    client.close()


def test_a_redis_that_does_not_answer_counts_as_unreachable(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    server.start()
    assert server.process is not None
    client = Client(redis_url=server.url)
    try:
        os.kill(server.process.pid, signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(ClusterUnavailableError):
            submit(client)
        assert time.monotonic() - began < LIMIT_SECONDS
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
        client.close()
        server.stop()


def test_a_wrong_setting_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ConfigurationError, match="redis://"):
        Client(redis_url="http://127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="unknown settings: redis_uri"):
        Client(redis_uri="redis://127.0.0.1:1")
