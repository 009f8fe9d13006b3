"""Everything in this folder needs sandboxes."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import readie
from readie.client import default_client
from tests.chaos.cluster import Cluster
from tests.chaos.executions import Executions


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.sandbox)


@pytest.fixture(scope="module")
def executions() -> Iterator[Executions]:
    """Counts what really ran."""
    executions = Executions()
    yield executions
    executions.close()


@pytest.fixture(scope="module")
def new_cluster(tmp_path_factory: pytest.TempPathFactory, data_folder: Path) -> Iterator[Callable[..., Cluster]]:
    """Start clusters, which the default client then uses; they end with the module."""
    clusters: list[Cluster] = []

    def start(**options: object) -> Cluster:
        cluster = Cluster(tmp_path_factory.mktemp("cluster"), data_folder, **options)  # type: ignore[arg-type]
        clusters.append(cluster)
        cluster.start()
        readie.configure(redis_url=cluster.redis.url)
        return cluster

    yield start
    default_client().close()
    for cluster in clusters:
        cluster.stop()
