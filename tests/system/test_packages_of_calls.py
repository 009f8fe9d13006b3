"""A call brings packages that its flavor lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from readie import Client, PackageInstallError
from readie.call import Call
from readie.hints import Hints
from readie.options import Options
from tests.local_stack import LocalStack
from tests.sandbox.package_index import package_index

SECONDS = 120


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, data_folder: Path) -> Iterator[Client]:
    """A client of a stack whose workers install from an index of this test."""
    with package_index(tmp_path_factory.mktemp("index")) as index:
        index.add("leaf", "1.0", {"leaf/__init__.py": "version = 1"})
        index.add("numpy", "1.0", {"numpy/__init__.py": "__version__ = 'of the layer'"})
        stack = LocalStack(tmp_path_factory.mktemp("home"))
        stack.environment |= {"READIE_DATA": str(data_folder), "UV_DEFAULT_INDEX": index.url}
        stack.up("--workers", "1", "--slots", "4")
        client = Client(redis_url=stack.redis_url)
        yield client
        client.close()
        stack.down()


def spawn(client: Client, packages: Sequence[str]) -> Call[Any]:
    """Ask a checkpoint with numpy, and these packages, where leaf is and which numpy there is."""

    def look() -> tuple[str | None, str]:
        import importlib.util

        import numpy

        found = importlib.util.find_spec("leaf")
        return (found and found.origin), numpy.__version__

    return client.submit(look, (), {}, Options(packages=packages, checkpoint_id="checkpoint_1"), lambda: Hints(()))


def test_the_first_call_installs_and_the_next_finds_it(client: Client) -> None:
    reports, logs = [], []
    for _ in range(2):
        call = spawn(client, ["leaf"])
        path, _ = call.result(timeout=SECONDS)
        assert path.startswith("/opt/layers/")
        reports.append(call.report())
        logs.append(list(call.logs()))
    assert [line.split(" in ")[0] for line in logs[0]] == ["readie: installing leaf", "readie: installed leaf"]
    assert logs[1] == []
    first, second = reports
    assert (first.packages, second.packages) == ("installed: leaf 1.0", "kept from an earlier call: leaf 1.0")
    assert first.phases["packages"] > 10 * second.phases["packages"]
    assert {report.start for report in reports} == {"restored"}
    assert sum(first.phases.values()) == pytest.approx(first.total_seconds, rel=0.05)
    assert spawn(client, []).result(timeout=SECONDS)[0] is None


def test_modules_that_the_checkpoint_has_imported_give_way(client: Client) -> None:
    call = spawn(client, ["numpy<1.5"])
    assert call.result(timeout=SECONDS)[1] == "of the layer"
    report = call.report()
    assert (report.start, report.checkpoint_id) == ("cold", None)
    assert "started without checkpoint_1, which has its own numpy" in (report.packages or "")


def test_what_the_flavor_has_is_not_installed(client: Client) -> None:
    call = spawn(client, ["numpy>1.5"])
    assert call.result(timeout=SECONDS)[1] != "of the layer"
    assert (call.report().packages, call.report().start) == ("the flavor has them", "restored")


def test_a_package_that_is_nowhere_fails_the_call_with_the_installers_words(client: Client) -> None:
    with pytest.raises(PackageInstallError, match="no-such-package was not found"):
        spawn(client, ["no-such-package"]).result(timeout=SECONDS)
