"""A whole cluster over TLS, with an authority and client certificates of its own."""

from __future__ import annotations

import base64
import json
import urllib.request
from pathlib import Path

import pytest

import readie
from readie import ClusterUnavailableError, ConfigurationError, remote
from tests.doors.shut_cluster import KEYS, Authority, ShutCluster
from tests.local_stack import eventually

SECONDS = 60


@remote
def double(number: int) -> int:
    print("doubles", number)
    return 2 * number


@remote
def count(most: int) -> object:
    yield from range(most)


@remote
def remember(number: int) -> int:
    global remembered  # noqa: PLW0603
    remembered = globals().get("remembered", 0) + number
    return int(remembered)


@remote
def never_ends() -> None:
    import time

    time.sleep(1000)


@pytest.mark.usefixtures("client")
def test_everything_works_over_tls_with_no_right_too_few(cluster: ShutCluster) -> None:
    with cluster.redis() as redis:
        redis.execute_command("ACL", "LOG", "RESET")
    before = json.loads(cluster.readie("status", "--json").stdout)["calls"]
    call = double.spawn(2)
    assert call.result(timeout=SECONDS) == 4
    assert list(call.logs()) == ["doubles 2"]
    assert len(double.spawn(3).result(timeout=SECONDS) * b"x") == 6
    assert list(count(100)) == list(range(100))
    assert list(double.map(range(10))) == list(range(0, 20, 2))
    with readie.session() as session:
        assert [remember.options(session=session)(1) for _ in range(3)] == [1, 2, 3]
    cancelled = never_ends.spawn()
    eventually(lambda: cancelled.status().state == "running", "it runs")
    assert cancelled.cancel()
    with pytest.raises(readie.CallCancelledError):
        cancelled.result(timeout=SECONDS)
    assert double.explain().worker

    status = json.loads(cluster.readie("status", "--json").stdout)
    assert status["state"] == "running"
    assert status["calls"]["forged"] == before["forged"]
    assert cluster.readie("sessions").returncode == 0
    assert call.id in eventually(lambda: flower(cluster, f"/api/task/info/{call.id}"), "Flower knows the call")
    page = f"/worker/{status['workers'][0]['name']}"
    eventually(lambda: "ready sandboxes" in flower(cluster, page), f"Flower shows the worker: {cluster.log('flower')}")
    settings = eventually(lambda: flower(cluster, page.replace("/worker/", "/api/workers?workername=")), "its settings")
    for shown in (settings, flower(cluster, page), *(cluster.log(part) for part in ("router", "worker", "flower"))):
        assert [secret for secret in cluster.secrets if secret in shown] == []
    with cluster.redis() as redis:
        refused = redis.execute_command("ACL", "LOG")
    assert refused == [], "nobody needs a right that it does not have"


def flower(cluster: ShutCluster, path: str) -> str:
    token = base64.b64encode(b"readie:password of Flower").decode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{cluster.flower_port}{path}", headers={"Authorization": f"Basic {token}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def test_who_is_not_let_in_hears_what_to_do(cluster: ShutCluster, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    url = cluster.url_of("alice")
    for wrong, what in (
        (cluster.url_of("alice", authority=other.certificate), "CERTIFICATE_VERIFY_FAILED.*ssl_ca_certs"),
        (f"rediss://alice:x@127.0.0.1:{cluster.port}/0?ssl_ca_certs={cluster.authority.certificate}", "ssl_certfile"),
        (url.replace("127.0.0.1", "localhost"), "host's name"),
        (f"redis://127.0.0.1:{cluster.port}/0", "can't reach Redis"),
    ):
        client = readie.Client(redis_url=wrong, signing_keys=KEYS)
        with pytest.raises(ClusterUnavailableError, match=what):
            client.get_call("0")
        client.close()
    for wrong, what in (
        (url.replace("ca.pem", "none.pem"), "ssl_ca_certs can't be read.*No such file"),
        (f"{url}&ssl_cert_reqs=CERT_REQUIRED", "ssl_cert_reqs must be required"),
    ):
        with pytest.raises(ConfigurationError, match=what):
            readie.Client(redis_url=wrong)
