"""Packages of a call are installed once, in a sandbox that reaches the index alone, and shared."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import Failure
from tests.sandbox.package_index import SPY_BACKEND, PackageIndex, package_index
from workers.control import RunningCall, StoppedError
from workers.packages.build import PackagesError
from workers.packages.layers import Layer, PackageLayers
from workers.packages.store import LayerStore
from workers.sandbox.filesystem import Filesystem
from workers.sandbox.host import SandboxHost
from workers.sandbox.runsc import find_runsc

SECONDS = 60.0
MOST_BYTES = 1 << 20

RunCall = Callable[..., Any]

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PackageIndex]:
    with package_index(tmp_path_factory.mktemp("index")) as index:
        index.add("leaf", "1.0", {"leaf/__init__.py": "version = 1"})
        index.add("leaf", "2.0", {"leaf/__init__.py": "version = 2"})
        index.add("numpy", "1.0", {"numpy/__init__.py": "__version__ = 'of the layer'"})
        index.add("branch", "1.0", {"branch.py": "import leaf, numpy"}, ["leaf<2", "numpy>=1"])
        index.add("broken", "1.0", {}, ["nowhere-to-be-found"])
        for name in ("one", "two", "three"):
            index.add(f"big-{name}".replace("-", "_"), "1.0", {f"big_{name}.py": f"# {'x' * (MOST_BYTES // 2)}"})
        index.add_source("spy", "1.0", SPY_BACKEND.replace("INDEX", str(index.port)))
        index.add_source("unbuildable", "1.0", "def build_wheel(*_): raise RuntimeError('no compiler, it says')")
        yield index


@pytest.fixture
def layers(
    run_dir: Path, filesystem: Filesystem, tmp_path: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PackageLayers]:
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
    store = LayerStore(tmp_path / "packages", MOST_BYTES)
    with SandboxHost(run_dir / "packages", find_runsc(), filesystem, layers=store.layers) as host:
        layers = PackageLayers(store, filesystem, host)
        yield layers
        layers.close()


def take(layers: PackageLayers, *packages: str, call: RunningCall | None = None) -> Layer:
    return layers.take(packages, call or RunningCall("c1", 1), lambda _: None)


def run_with(layers: PackageLayers, layer: Layer, run_call: RunCall, function: Callable[[], Any]) -> Any:
    """Run a function in a sandbox that has a layer."""
    sandbox = layers._builder._host.take()
    try:
        sandbox.start(timeout=SECONDS)
        connection = sandbox.wait_ready(timeout=SECONDS)
        connection.layer = layer.path
        return run_call(connection, function)
    finally:
        layers._builder._host.discard(sandbox)


def test_what_the_flavor_lacks_is_installed_and_what_it_has_is_not(layers: PackageLayers, run_call: RunCall) -> None:
    layer = take(layers, "branch")
    assert (layer.installed, layer.pins) == (True, {"branch": "1.0", "leaf": "1.0"})

    def look() -> tuple[int, str, bool]:
        import os

        import branch

        try:
            os.listdir("/opt/layers")  # noqa: PTH208
            listable = True
        except PermissionError:
            listable = False
        return branch.leaf.version, branch.numpy.__version__, listable

    version, of_numpy, listable = run_with(layers, layer, run_call, look)
    assert (version, listable) == (1, False)
    assert of_numpy != "of the layer"


def test_nothing_is_asked_of_the_index_for_what_is_there(layers: PackageLayers, index: PackageIndex) -> None:
    before = len(index.asked)
    assert take(layers, "numpy>=1.20", "cloudpickle").path is None
    assert len(index.asked) == before

    first = take(layers, "leaf")
    before = len(index.asked)
    again = take(layers, "leaf")
    assert (again.path, again.installed) == (first.path, False)
    assert len(index.asked) == before


def test_a_set_that_many_calls_ask_for_at_once_is_installed_once(layers: PackageLayers, index: PackageIndex) -> None:
    before = index.asked.count("/simple/leaf/")
    with ThreadPoolExecutor(6) as pool:
        taken = list(pool.map(lambda _: take(layers, "leaf==2.0"), range(6)))
    assert sorted(layer.installed for layer in taken) == [False] * 5 + [True]
    assert len({layer.path for layer in taken}) == 1
    assert index.asked.count("/simple/leaf/") == before + 1


def test_another_version_than_the_flavors_comes_first(layers: PackageLayers, run_call: RunCall) -> None:
    layer = take(layers, "numpy<1.5")

    def look() -> str:
        import numpy

        return str(numpy.__version__)

    assert run_with(layers, layer, run_call, look) == "of the layer"
    assert layer.conflicts(["numpy", "numpy.linalg"]) == ["numpy"]
    assert layer.conflicts(["json"]) == []


@pytest.mark.parametrize(
    ("package", "said"),
    [
        ("no-such-package", "no-such-package was not found"),
        ("broken", "nowhere-to-be-found"),
        ("unbuildable", "no compiler, it says"),
        ("cloudpickle<1", "cloudpickle"),
    ],
)
def test_what_can_not_be_installed_says_why_and_harms_nothing(layers: PackageLayers, package: str, said: str) -> None:
    with pytest.raises(PackagesError, match=said):
        take(layers, package)
    assert take(layers, "leaf").path is not None


def test_a_package_that_is_built_reaches_the_index_and_nothing_else(layers: PackageLayers, run_call: RunCall) -> None:
    def look() -> dict[str, str]:
        import spy

        return dict(spy.seen)

    refused, connected = "02", "00"
    seen = run_with(layers, take(layers, "spy"), run_call, look)
    assert seen == {"elsewhere": refused, "other port": refused, "index": connected}


def test_layers_that_are_not_used_make_room_for_others(layers: PackageLayers) -> None:
    used = take(layers, "big-one")
    assert used.path is not None
    take(layers, "big-two").close()
    third = take(layers, "big-three")
    kept = {path.name for path in layers._store.layers.iterdir() if path.is_dir()}
    assert kept == {Path(used.path).name, Path(str(third.path)).name}
    assert take(layers, "big-two").installed


def test_a_cancelled_call_stops_installing(layers: PackageLayers) -> None:
    call = RunningCall("c1", 1)
    begun = threading.Event()

    def say(text: str) -> None:
        begun.set()
        call.stop(Failure(code=ErrorCode.CANCELLED, message="cancelled"))

    with pytest.raises(StoppedError):
        layers.take(["leaf"], call, say)
    assert begun.is_set()
    assert take(layers, "leaf").installed


def test_requirements_that_lead_to_the_same_versions_share_a_layer_unless_code_was_run(layers: PackageLayers) -> None:
    first, second = take(layers, "leaf==2.0"), take(layers, "leaf>=1.5")
    assert (second.installed, second.path) == (True, first.path)
    built, again = take(layers, "spy"), take(layers, "spy==1.0")
    assert built.pins == again.pins == {"spy": "1.0"}
    assert built.path != again.path
