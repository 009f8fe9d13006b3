"""A call is one trace, from its caller through router and worker to the executor."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local_stack import eventually
from tests.monitoring.collector import Collector
from tests.monitoring.conftest import Observed

pytestmark = pytest.mark.sandbox

SERVICES = {
    "call mean": "shop",
    "submit": "shop",
    "wait": "shop",
    "route": "readie-router",
    "run mean": "readie-worker",
    "acquire sandbox": "readie-worker",
    "restore": "readie-worker",
    "connect": "readie-worker",
    "load": "readie-executor",
    "execute": "readie-executor",
    "dump": "readie-executor",
    "result": "readie-worker",
}


@pytest.fixture(scope="module")
def told(observed: Observed, collector: Collector) -> list[str]:
    """Return what the program printed: the id of a call, and two traces."""
    program = Path(__file__).with_name("traced_program.py.txt")
    environment = {**os.environ, "READIE_REDIS_URL": observed.redis_url, **collector.environment}
    done = subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_call_is_one_trace_below_the_callers_span(told: list[str], collector: Collector) -> None:
    expected = {"request": "shop", **SERVICES}
    eventually(lambda: collector.spans(told[1]).keys() >= expected.keys(), "all spans have come", seconds=20)
    spans = collector.spans(told[1])
    assert {name: span.service for name, span in spans.items()} == expected
    names = {span.id: name for name, span in spans.items()}
    parents = {name: names.get(span.parent) for name, span in spans.items()}
    below_call = dict.fromkeys(("submit", "wait", "route", "run mean"), "call mean")
    below_run = dict.fromkeys(
        ("acquire sandbox", "restore", "connect", "load", "execute", "dump", "result"), "run mean"
    )
    assert parents == {"request": None, "call mean": "request", **below_call, **below_run}
    in_order = ["route", "run mean", "execute", "result"]
    assert sorted(in_order, key=lambda name: spans[name].start) == in_order
    assert all(span.start <= span.end for span in spans.values())
    assert spans["route"].attributes["readie.worker"] == spans["run mean"].attributes["readie.worker"]


def test_a_program_without_traces_of_its_own_has_the_calls_alone(told: list[str], collector: Collector) -> None:
    def traces() -> set[str]:
        return {span.trace for span in collector.all() if span.attributes.get("readie.call") == told[0]}

    (trace,) = eventually(traces, "its spans have come", seconds=20)
    eventually(lambda: "result" in collector.spans(trace), "the worker's have come")
    spans = collector.spans(trace)
    assert spans["call mean"].service == "readie-client"
    assert spans["call mean"].parent == ""
    assert spans["call mean"].attributes["readie.start"] in {"restored", "cold"}


def test_a_failed_call_is_marked_and_nothing_of_its_arguments_is_told(told: list[str], collector: Collector) -> None:
    eventually(lambda: "result" in collector.spans(told[2]), "the worker's have come", seconds=20)
    spans = collector.spans(told[2])
    assert spans["run fail"].error == spans["call fail"].error == "remote"
    assert not any(b"hush-hush" in body for body in collector.bodies)
