"""What a router says it would do with a call, and that it then does it."""

import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis
from router_cluster import Client, RouterProcess, Worker, catalogue, eventually, header

import readie
from readie.explanation import Explanation
from readie.protocol import keys
from readie.protocol.call import CallHeader
from readie.protocol.codes import ErrorCode
from readie.protocol.explain import ExplainAnswer, ExplainRequest

NewWorker = Callable[..., Worker]
NUMPY = ("numpy", "numpy.linalg")
PANDAS = (*NUMPY, "pandas")
PROGRAM = """
import readie

@readie.remote
def totals(rows):
    import pandas.core.frame
    import numpy
    import nowhere.to_be_found
    return rows

def plain(rows):
    import numpy.linalg
    return rows

@readie.remote(checkpoint_id="checkpoint_7")
def pinned(rows):
    return rows

class Group:
    @readie.remote
    def method(self):
        import pandas

not_a_function = 5
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def ask(redis: Redis, call: CallHeader) -> ExplainAnswer:
    """Ask as a client does."""
    request = ExplainRequest(task=keys.EXPLAIN_TASK, id=uuid.uuid4().hex, header=call)
    redis.lpush(keys.SUBMIT_QUEUE, request.model_dump_json(exclude_none=True))
    return ExplainAnswer.model_validate_json(answer_to(redis, request.id))


def answer_to(redis: Redis, question_id: str) -> bytes:
    """Wait for the answer to a question and take it."""
    answer = eventually(lambda: redis.lpop(keys.explanation(question_id)), f"the answer to {question_id}")
    assert isinstance(answer, bytes)
    return answer


@readie.remote
def totals() -> None:
    import nowhere.to_be_found  # noqa: F401
    import pandas.core.frame  # noqa: F401


@pytest.mark.usefixtures("router", "configured")
def test_an_explanation_tells_all_that_the_choice_is_made_from(new_worker: NewWorker) -> None:
    new_worker().serve(catalogue(NUMPY, PANDAS, generation="g7")).announce()
    answer = totals.explain()
    assert set(answer.hints.imports) == {"pandas.core.frame", "nowhere.to_be_found"}
    assert answer.resolved == ("pandas",)
    assert answer.unknown == ("nowhere.to_be_found",)
    assert (answer.worker, answer.generation) == ("worker1@test", "g7")
    assert [start.checkpoint_id for start in answer.starts] == ["checkpoint_2", "checkpoint_1", "checkpoint_0", None]
    best, partial, _, cold = answer.starts
    assert (best.base_seconds, best.import_seconds, best.missing) == (pytest.approx(0.1), 0.0, ())
    assert best.size_seconds == pytest.approx(0.001 * (15 + 20 + 1 + 40))
    assert (partial.import_seconds, partial.missing) == (pytest.approx(0.5), ("pandas",))
    assert (cold.base_seconds, cold.size_seconds, cold.missing) == (pytest.approx(0.3), 0.0, ("numpy", "pandas"))
    assert answer.checkpoint_id == "checkpoint_2"
    assert answer.predicted_seconds == pytest.approx(best.seconds)
    assert "lowest" in answer.reason
    assert (answer.waits_for, answer.failure) == ("", None)


@pytest.mark.usefixtures("router")
@pytest.mark.parametrize(
    "call",
    [
        header("c", imports=["pandas", "unknown"]),
        header("c", imports=["numpy.linalg.norm"]),
        header("c"),
        header("c", imports=["pandas"], pin="checkpoint_0"),
        header("c", imports=["pandas"], cold=True),
    ],
    ids=["pandas", "numpy", "nothing", "pin", "opt-out"],
)
def test_a_call_is_placed_as_was_explained(client: Client, new_worker: NewWorker, call: CallHeader) -> None:
    new_worker("one@test", slots=9).serve(catalogue(NUMPY, generation="one")).announce()
    new_worker("two@test", slots=9).serve(catalogue(NUMPY, PANDAS, generation="two")).announce()
    answer = ask(client.redis, call)
    assert client.redis.zcard(keys.PENDING) == 0, "a question places nothing"
    client.submit(call)
    eventually(lambda: client.field("c", "worker"), "the call is placed")
    assert client.field("c", "worker") == answer.worker
    _, placement = new_worker(client.field("c", "worker")).receive_header()
    assert placement.checkpoint_id == answer.checkpoint_id
    assert placement.predicted_seconds == answer.predicted_seconds
    assert placement.reason == answer.reason


@pytest.mark.usefixtures("router")
def test_a_ready_sandbox_is_a_way_of_its_own(redis: Redis, new_worker: NewWorker) -> None:
    new_worker().serve(catalogue(NUMPY, PANDAS)).announce().make_ready(checkpoint_1=1)
    answer = ask(redis, header("c", imports=["numpy"]))
    first = answer.starts[0]
    assert (first.checkpoint_id, first.ready, first.seconds) == ("checkpoint_1", True, 0.0)
    assert answer.checkpoint_id == "checkpoint_1"
    assert [start.checkpoint_id for start in answer.starts].count("checkpoint_1") == 2


@pytest.mark.usefixtures("router")
def test_a_checkpoint_that_failed_to_restore_is_not_among_the_ways(redis: Redis, new_worker: NewWorker) -> None:
    worker = new_worker().serve(catalogue(NUMPY, PANDAS)).announce()
    worker.ledger.avoid(worker.name, "checkpoint_2")
    answer = ask(redis, header("c", imports=["pandas"]))
    assert "checkpoint_2" not in [start.checkpoint_id for start in answer.starts]
    assert answer.checkpoint_id == "checkpoint_1"


@pytest.mark.usefixtures("router")
def test_what_a_call_would_wait_for_is_explained_with_what_would_become_of_it(
    client: Client, new_worker: NewWorker
) -> None:
    assert ask(client.redis, header("c")).waits_for == "no worker is running"
    worker = new_worker(slots=1).serve(catalogue(PANDAS)).announce()
    client.submit(header("first"))
    worker.receive()
    answer = ask(client.redis, header("c", imports=["pandas"]))
    assert answer.waits_for == "all workers are full"
    assert answer.worker == worker.name
    assert answer.starts[0].checkpoint_id == "checkpoint_1"
    assert (answer.checkpoint_id, answer.predicted_seconds) == (None, None)


@pytest.mark.usefixtures("router")
@pytest.mark.parametrize(
    ("call", "code"),
    [
        (header("c", python="3.9"), ErrorCode.INCOMPATIBLE_PYTHON),
        (header("c", pin="checkpoint_9"), ErrorCode.INVALID_REQUEST),
        (header("c", flavor="unknown"), ErrorCode.INVALID_REQUEST),
        (header("c", memory=1 << 50), ErrorCode.RESOURCE_EXHAUSTED),
        (header("c", pin="checkpoint_0", cold=True), ErrorCode.INVALID_REQUEST),
    ],
    ids=["python", "pin", "flavor", "memory", "contradiction"],
)
def test_why_a_call_would_be_refused_is_explained(
    redis: Redis, new_worker: NewWorker, call: CallHeader, code: ErrorCode
) -> None:
    new_worker(memory=1 << 30).serve(catalogue(PANDAS)).announce()
    failure = ask(redis, call).failure
    assert failure is not None
    assert failure.code is code
    assert failure.message


@pytest.mark.usefixtures("router")
def test_a_worker_without_a_generation_is_explained(redis: Redis, new_worker: NewWorker) -> None:
    new_worker().announce()
    answer = ask(redis, header("c", imports=["pandas"]))
    assert (answer.worker, answer.generation, answer.starts) == ("worker1@test", None, ())
    assert answer.reason == "the worker serves no checkpoints"


@pytest.mark.usefixtures("router")
def test_a_question_that_can_not_be_read_becomes_a_dead_letter_and_whoever_asked_is_told(
    client: Client, redis: Redis
) -> None:
    request = {"task": keys.EXPLAIN_TASK, "id": "q", "header": {"surprise": 1}}
    redis.lpush(keys.SUBMIT_QUEUE, json.dumps(request))
    failure = ExplainAnswer.model_validate_json(answer_to(redis, "q")).failure
    assert failure is not None
    assert failure.code is ErrorCode.INVALID_REQUEST
    client.end_of_queue()
    (letter,) = client.dead_letters()
    assert "bad question" in letter["reason"]


@pytest.mark.usefixtures("router")
@pytest.mark.parametrize("question_id", [5, "", "../x", "x" * 100, None])
def test_a_question_that_can_not_be_answered_becomes_a_dead_letter(
    client: Client, redis: Redis, question_id: object
) -> None:
    call = header("c").model_dump(mode="json")
    redis.lpush(keys.SUBMIT_QUEUE, json.dumps({"task": keys.EXPLAIN_TASK, "id": question_id, "header": call}))
    eventually(client.dead_letters, "the dead letter")
    client.end_of_queue()


@pytest.mark.usefixtures("router")
def test_whoever_asks_about_what_is_no_text_is_told_and_others_are_answered(
    client: Client, redis: Redis, new_worker: NewWorker
) -> None:
    new_worker().serve(catalogue(PANDAS)).announce()
    call = header("c").model_dump(mode="json") | {"hints": {"imports": ["\ud800"]}}
    redis.lpush(keys.SUBMIT_QUEUE, json.dumps({"task": keys.EXPLAIN_TASK, "id": "q", "header": call}))
    assert answer_to(redis, "q")
    assert ask(redis, header("c", imports=["pandas"])).checkpoint_id == "checkpoint_1"
    eventually(lambda: client.taken() == 0, "nothing is in the router's hand")


@pytest.mark.usefixtures("router")
def test_an_answer_that_nobody_reads_does_not_stay(client: Client, redis: Redis) -> None:
    request = ExplainRequest(task=keys.EXPLAIN_TASK, id="q", header=header("c"))
    redis.lpush(keys.SUBMIT_QUEUE, request.model_dump_json())
    client.end_of_queue()
    assert redis.ttl(keys.explanation("q")) > 0


@pytest.mark.usefixtures("configured")
def test_without_a_router_a_question_ends_in_an_error() -> None:
    with pytest.raises(readie.ClusterUnavailableError, match="no router"):
        totals.explain()


@pytest.mark.usefixtures("configured")
def test_a_question_outlives_the_router_that_was_killed_with_it(
    client: Client, redis: Redis, new_worker: NewWorker, start_router: Callable[..., RouterProcess]
) -> None:
    new_worker().announce()
    killed = start_router(READIE_ROUTER_LEASE_SECONDS="2")
    killed.wait_for_log("consuming")
    (router,) = redis.zrange(keys.ROUTERS, 0, -1)
    killed.kill()
    # As if it had been killed right after taking it.
    request = ExplainRequest(task=keys.EXPLAIN_TASK, id="q", header=header("c"))
    redis.lpush(keys.router_taken(router.decode()), request.model_dump_json())
    start_router(READIE_ROUTER_LEASE_SECONDS="2")
    assert answer_to(redis, "q")
    eventually(lambda: client.taken() == 0, "nothing is in a router's hand")


def run_readie(redis_url: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command as a user does, in a terminal of 80 columns."""
    return subprocess.run(
        [sys.executable, "-m", "readie", *arguments],
        env={**os.environ, "READIE_REDIS_URL": redis_url, "COLUMNS": "80", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.usefixtures("router")
def test_the_command_shows_a_table_of_80_columns(redis_url: str, new_worker: NewWorker, program: Path) -> None:
    new_worker().serve(catalogue(NUMPY, PANDAS, generation="20261129-120000-abcdef")).announce().make_ready(
        checkpoint_1=1
    )
    done = run_readie(redis_url, "explain", f"{program}:totals")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert re.search(r"^Hints +.*pandas\.core\.frame", done.stdout, re.MULTILINE)
    assert re.search(r"^Resolved +numpy, pandas$", done.stdout, re.MULTILINE)
    assert re.search(r"^Unknown +nowhere\.to_be_found$", done.stdout, re.MULTILINE)
    assert re.search(r"^ checkpoint_2 +100 +76 +0 +176$", done.stdout, re.MULTILINE)
    assert re.search(r"^ checkpoint_1 \(ready\) +0 +0 +500 +500 +pandas$", done.stdout, re.MULTILINE)
    assert re.search(r"^ cold +300 +0 +700 +1,000 +numpy, pandas$", done.stdout, re.MULTILINE)
    assert re.search(r"^Choice +checkpoint_2 \(lowest predicted start", done.stdout, re.MULTILINE)
    assert done.stdout.index("checkpoint_2 ") < done.stdout.index("checkpoint_1 (ready)") < done.stdout.index("cold ")


@pytest.mark.usefixtures("router")
@pytest.mark.parametrize(("function", "hint"), [("totals", "pandas.core.frame"), ("plain", "numpy.linalg")])
def test_the_command_prints_json_of_remote_and_of_plain_functions(
    redis_url: str, new_worker: NewWorker, program: Path, function: str, hint: str
) -> None:
    new_worker().serve(catalogue(NUMPY, PANDAS)).announce()
    done = run_readie(redis_url, "explain", f"{program}:{function}", "--json")
    assert done.returncode == 0, done.stderr
    answer = Explanation.model_validate_json(done.stdout)
    assert hint in answer.hints.imports
    assert answer.checkpoint_id is not None
    assert len(answer.starts) == 4


@pytest.mark.usefixtures("router")
def test_the_command_says_why_a_call_would_be_refused_and_fails(
    redis_url: str, new_worker: NewWorker, program: Path
) -> None:
    new_worker().serve(catalogue(NUMPY, PANDAS)).announce()
    done = run_readie(redis_url, "explain", f"{program}:pinned")
    assert done.returncode == 1
    assert re.search(r"^Refused +no worker lists the checkpoint 'checkpoint_7'", done.stdout, re.MULTILINE)
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.usefixtures("router")
def test_the_command_says_what_a_call_would_wait_for(redis_url: str, program: Path) -> None:
    done = run_readie(redis_url, "explain", f"{program}:Group.method")
    assert done.returncode == 0
    assert re.search(r"^Waits +no worker is running$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("program.py", "is not FILE:FUNCTION"),
        ("missing.py:f", "there is no file"),
        ("program.py:missing", "has no 'missing'"),
        ("program.py:not_a_function", "int"),
        ("broken.py:f", "ZeroDivisionError"),
    ],
)
def test_the_command_says_what_is_wrong_with_its_argument(
    redis_url: str, program: Path, target: str, says: str
) -> None:
    (program.parent / "broken.py").write_text("1 / 0")
    done = run_readie(redis_url, "explain", str(program.parent / target))
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
