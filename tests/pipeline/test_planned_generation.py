"""Generations whose checkpoints are planned, by the command and in real sandboxes."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from readie.generations.disk import load_generation, read_plan
from readie.protocol.call import ImportHints
from readie.traffic import TrafficCounter
from tests.conftest import RedisServer
from tests.pipeline.conftest import TIMEOUT_SECONDS, Workbench

pytestmark = pytest.mark.sandbox

Planned = tuple[Workbench, dict[str, Any]]


@pytest.fixture(scope="module")
def planned(
    made: tuple[Workbench, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Workbench, dict[str, Any]]:
    """A generation planned for calls of numpy, and what the pipeline said of it; not to be changed."""
    folder = tmp_path_factory.mktemp("planned")
    shutil.copytree(made[0].folder, folder, symlinks=True, dirs_exist_ok=True)
    workbench = Workbench(folder)
    workbench.plan_for((8, ["numpy", "numpy.array"]), (1, []), (2, ["numpy.f2py.compile"]), (1, ["nowhere.module"]))
    return workbench, workbench.make()


@pytest.fixture
def copied(planned: Planned, workbench: Workbench) -> Workbench:
    """The same, for a test to change."""
    shutil.copytree(planned[0].folder, workbench.folder, symlinks=True, dirs_exist_ok=True)
    return workbench


def test_a_plan_follows_the_corpus_and_says_what_it_gains(planned: Planned) -> None:
    _, said = planned
    empty, *others = said["checkpoints"]
    assert empty["imports"] == []
    assert others[0]["imports"][0] == "numpy"
    assert said["expected"]["planned_seconds"] < said["expected"]["empty_seconds"] <= said["expected"]["cold_seconds"]
    record = read_plan(Path(said["path"]))
    assert record.expected is not None
    assert record.expected.model_dump() == said["expected"]
    assert (record.import_sets, record.notes, record.unfit) == (4, (), {})
    assert record.corpus is not None
    assert record.corpus.endswith("corpus.jsonl")
    # Of numpy's public modules some need packages that are not there.
    assert record.unimportable
    assert all(name.startswith("numpy.") for name in record.unimportable)


def test_the_catalogue_has_residuals_and_every_module_that_can_be_imported(planned: Planned) -> None:
    catalogue = load_generation(Path(planned[1]["path"])).catalogue
    assert {"numpy", "numpy.f2py"} <= catalogue.modules.keys()
    for checkpoint in catalogue.checkpoints:
        predicted = (
            catalogue.cost.restore_base_seconds + catalogue.cost.restore_seconds_per_megabyte * checkpoint.megabytes
        )
        assert checkpoint.restore_seconds == pytest.approx(predicted + checkpoint.residual_seconds)
    # A line meets two points.
    assert len(catalogue.checkpoints) < 3 or any(checkpoint.residual_seconds for checkpoint in catalogue.checkpoints)


def test_the_same_corpus_needs_no_other_generation_and_another_does(copied: Workbench, planned: Planned) -> None:
    again = copied.make()
    assert (again["reused"], again["generation"]) == (True, planned[1]["generation"])
    lines = [{"imports": ["numpy.f2py"]}]
    (copied.folder / "own.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    other = copied.make("--corpus", str(copied.folder / "own.jsonl"), "--checkpoints", "1")
    assert (other["reused"], len(other["checkpoints"])) == (False, 2)
    assert "numpy.f2py" in other["checkpoints"][1]["imports"]


def test_what_is_asked_for_wrongly_is_said(workbench: Workbench) -> None:
    status, said = workbench.fail("--corpus", "/nowhere")
    assert status == 1
    assert "fixes its checkpoints" in said
    workbench.plan()
    status, said = workbench.fail()
    assert status == 1
    assert "corpus.jsonl can't be read" in said
    assert workbench.fail("--checkpoints", "16")[0] == 2
    assert workbench.fail("--corpus", "x", "--from-traffic")[0] == 2


def test_a_gpu_flavor_needs_gpus(workbench: Workbench) -> None:
    description = workbench.flavor / "flavor.toml"
    description.write_text(description.read_text().replace('"tiny"\n', '"tiny"\ngpu = true\n'))
    status, said = workbench.fail()
    assert status == 1
    assert "SANDBOX_GPU is 'none'" in said


def _traffic(workbench: Workbench, redis_url: str, *counts: tuple[int, tuple[str, ...]]) -> tuple[str, str]:
    """Count these calls, build from the traffic, and return what was printed as JSON and for people."""
    redis = Redis.from_url(redis_url)
    counter = TrafficCounter(redis)
    for number, imports in counts:
        for _ in range(number):
            counter.count("tiny", ImportHints(imports=imports))
    counter.flush()
    redis.close()
    with workbench.start("--json", "--from-traffic", READIE_REDIS_URL=redis_url) as process:
        out, err = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 0, err
    return out, err


def test_from_traffic_it_says_what_there_is_and_builds_only_what_is_better(
    copied: Workbench, planned: Planned, redis_server: RedisServer, redis: Redis
) -> None:
    calls = ((8, ("numpy", "numpy.array")), (1, ()), (2, ("numpy.f2py.compile",)))
    out, err = _traffic(copied, redis_server.url, *calls)
    assert f"today's generation {planned[1]['generation']}: " in err
    assert "that is as good, so nothing is built" in err
    assert json.loads(out)["generation"] == planned[1]["generation"]

    redis.flushall()
    copied.make("--checkpoints", "0")
    out, err = _traffic(copied, redis_server.url, (50, ("numpy.f2py.compile",)))
    (generation,) = re.findall(r"today's generation (\S+): ", err)
    today, new = (float(err.partition(text)[2].split()[0]) for text in (f"{generation}: ", "mean predicted start "))
    assert new < today
    assert json.loads(out)["generation"] != generation
    assert "numpy.f2py" in json.loads(out)["checkpoints"][1]["imports"]


def test_without_traffic_there_is_nothing_to_plan_for(copied: Workbench, redis_url: str) -> None:
    status, said = copied.fail("--from-traffic", READIE_REDIS_URL=redis_url)
    assert status == 1
    assert "has no import sets" in said
