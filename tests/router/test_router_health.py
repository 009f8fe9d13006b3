"""A router says whether it lives and whether it serves."""

from collections.abc import Callable
from pathlib import Path

import pytest
from router_cluster import RouterProcess, eventually

from readie.monitoring.health import Health
from readie.stack.programs import free_port
from tests.conftest import RedisServer
from tests.monitoring.scraping import ask, scrape


def test_a_router_without_redis_lives_but_does_not_serve(tmp_path: Path) -> None:
    port = free_port()
    redis = RedisServer(tmp_path, "--appendonly", "no")
    redis.start()
    address = {"READIE_METRICS_ADDRESS": f"127.0.0.1:{port}", "READIE_ROUTER_LEASE_SECONDS": "2"}
    router = RouterProcess(redis.url, tmp_path / "router.log", **address)
    try:
        eventually(lambda: ask(port, "/readyz")[0] == 200, "it serves")
        assert scrape(port).value("readie_cluster_redis_up") == 1
        redis.stop()
        eventually(lambda: ask(port, "/readyz")[0] == 503, "it does not serve")
        assert "has not renewed its lease in Redis for" in ask(port, "/readyz")[1]
        assert ask(port, "/healthz") == (200, "ok\n")
        without = scrape(port)
        assert without.value("readie_cluster_redis_up") == 0
        assert not without.families["readie_cluster_pending_calls"].samples, "old numbers would pass for new ones"
        assert without.value("readie_router_redis_errors_total") > 0
        redis.start()
        eventually(lambda: ask(port, "/readyz")[0] == 200, "it serves again")
        assert ask(port, "/")[0] == 404
    finally:
        router.kill()
        redis.stop()


def test_a_loop_that_stands_still_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    health = Health(lease_seconds=10)
    health.turned()
    health.renewed()
    assert health.why_dead() is health.why_not_ready() is None
    monkeypatch.setattr("readie.monitoring.health._STUCK_SECONDS", -1.0)
    assert health.why_dead() == health.why_not_ready() == "its loop has stood still for 0 s"


def test_an_address_that_is_taken_is_said_and_nothing_starts(
    start_router: Callable[..., RouterProcess], redis_url: str
) -> None:
    taken = redis_url.partition("//")[2].partition("/")[0]
    router = start_router(READIE_METRICS_ADDRESS=taken)
    assert router.process.wait(timeout=30) == 2
    assert f"READIE_METRICS_ADDRESS={taken} can't be listened on: [Errno 98] Address already in use" in router.log
