"""Fixtures of the tests of a cluster with all its doors shut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import readie
from readie.client import default_client
from tests.doors.shut_cluster import KEYS, ShutCluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs sandboxes."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.sandbox)


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory, data_folder: Path) -> Iterator[ShutCluster]:
    """A running one."""
    cluster = ShutCluster(tmp_path_factory.mktemp("doors"), data_folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def client(cluster: ShutCluster) -> Iterator[readie.Client]:
    """This process's default client, with a certificate and the keys."""
    readie.configure(redis_url=cluster.url_of("alice"), signing_keys=KEYS)
    yield default_client()
    readie.configure()
