"""Run in the client's container: one kind of call each, told as a line of JSON."""

import json
import sys
import time
from typing import Any

from readie import Call, WorkerLostError, remote
from readie.protocol.envelope import CallState


@remote
def mean(values: list[float]) -> float:
    import pandas as pd

    return float(pd.Series(values).mean())


@remote
def fail(secret: str) -> None:
    raise ValueError("as it should")


@remote
def forever() -> None:
    time.sleep(3600)


@remote
def double(number: int) -> int:
    return 2 * number


def say(told: object) -> None:
    """Print a line for the test."""
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def tell(call: Call[Any], value: object) -> None:
    """Print how a call went."""
    report = call.report()
    say({"id": call.id, "value": value, "start": report.start, "worker": report.worker})


def call_mean() -> None:
    """A function that needs pandas."""
    call = mean.spawn([1.0, 2.0, 6.0])
    tell(call, call.result(timeout=120))


def call_fail() -> None:
    """A function that raises."""
    call = fail.spawn("password of the caller")
    try:
        call.result(timeout=120)
    except ValueError as error:
        tell(call, str(error))


def call_forever() -> None:
    """A function whose worker is killed."""
    call = forever.spawn()
    while call.status().state is not CallState.RUNNING:
        time.sleep(0.05)
    say({"id": call.id})
    try:
        call.result(timeout=120)
    except WorkerLostError as error:
        tell(call, type(error).__name__)


def call_many() -> None:
    """Functions while whatever is killed that is killed meanwhile."""
    calls = [double.spawn(number) for number in range(100)]
    say([call.result(timeout=120) for call in calls])


if __name__ == "__main__":
    {"mean": call_mean, "fail": call_fail, "forever": call_forever, "many": call_many}[sys.argv[1]]()
