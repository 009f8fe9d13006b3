"""Which worker gets a call and how the call starts there, seen from both ends of a running router."""

import itertools
from collections.abc import Callable

import pytest
from redis import Redis
from router_cluster import Client, Worker, catalogue, eventually, header, message

from readie.protocol import keys
from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import CallState, Envelope
from readie.traffic import read_traffic

NewWorker = Callable[..., Worker]
NUMPY = ("numpy", "numpy.linalg")
PANDAS = (*NUMPY, "pandas")

pytestmark = pytest.mark.usefixtures("router")


def test_a_call_goes_to_the_worker_with_the_checkpoint_that_starts_soonest(
    client: Client, new_worker: NewWorker
) -> None:
    worker = new_worker().serve(catalogue(NUMPY, PANDAS)).announce()
    client.submit(header("c", imports=["pandas.core.frame.DataFrame"]))
    call, placement = worker.receive_header()
    assert call.id == "c"
    assert placement.worker == worker.name
    assert placement.incarnation == worker.announcement.incarnation
    assert placement.attempt == 1
    assert placement.checkpoint_id == "checkpoint_2"
    # 0.1 + 0.001 · (15 + 20 + 1 + 40), nothing is missing
    assert placement.predicted_seconds == pytest.approx(0.176)
    assert "checkpoint_2" in placement.reason
    assert "cold" in placement.reason
    assert placement.route_seconds > 0
    assert client.field("c", "state") == "placed"


def test_a_worker_whose_generation_starts_the_call_sooner_is_preferred(client: Client, new_worker: NewWorker) -> None:
    plain = new_worker("plain@test", slots=100).serve(catalogue(generation="plain")).announce()
    fitting = new_worker("fitting@test", slots=2).serve(catalogue(PANDAS, generation="fitting")).announce()
    cold = new_worker("cold@test", slots=100).announce()
    for number in range(4):
        client.submit(header(f"c{number}", imports=["pandas"]))
    assert {fitting.receive_header()[1].checkpoint_id for _ in range(2)} == {"checkpoint_1"}
    assert {plain.receive_header()[1].checkpoint_id for _ in range(2)} == {"checkpoint_0"}
    assert cold.queued() == 0


def test_calls_spread_over_equal_workers_by_load(client: Client, new_worker: NewWorker) -> None:
    served = catalogue(PANDAS)
    workers = [new_worker(f"worker{number}@test", slots=4).serve(served).announce() for number in range(3)]
    for number in range(6):
        client.submit(header(f"c{number}", imports=["pandas"]))
    for worker in workers:
        assert {worker.receive_header()[1].checkpoint_id for _ in range(2)} == {"checkpoint_1"}


def test_an_opt_out_starts_cold_with_the_cold_prediction(client: Client, new_worker: NewWorker) -> None:
    worker = new_worker().serve(catalogue(PANDAS)).announce()
    client.submit(header("c", imports=["pandas"], cold=True))
    _, placement = worker.receive_header()
    assert placement.checkpoint_id is None
    assert placement.predicted_seconds == pytest.approx(0.3 + 0.2 + 0.5)


def test_a_worker_without_a_generation_starts_calls_cold(client: Client, new_worker: NewWorker) -> None:
    worker = new_worker().announce()
    client.submit(header("c", imports=["pandas"]))
    _, placement = worker.receive_header()
    assert placement.checkpoint_id is None
    assert placement.predicted_seconds is None


def test_a_catalogue_that_is_not_in_redis_means_a_cold_start_until_it_is(client: Client, new_worker: NewWorker) -> None:
    served = catalogue(PANDAS)
    worker = new_worker(slots=1000).serve(served, publish=False).announce()
    client.submit(header("before", imports=["pandas"]))
    assert worker.receive_header()[1].checkpoint_id is None
    worker.ledger.publish_catalogue(served)
    numbers = itertools.count()

    def checkpoint_of_next_call() -> str | None:
        client.submit(header(f"after{next(numbers)}", imports=["pandas"]))
        call, placement = worker.receive_header()
        client.ledger.cancel(call.id)
        return placement.checkpoint_id

    eventually(lambda: checkpoint_of_next_call() == "checkpoint_1", "the catalogue is read")


def test_a_catalogue_that_can_not_be_read_means_a_cold_start(
    client: Client, new_worker: NewWorker, redis: Redis
) -> None:
    served = catalogue(PANDAS)
    for number, text in enumerate([b"{", b'{"version": 2}', served.model_dump_json().replace("0.5", "1e999").encode()]):
        redis.set(keys.catalogue(served.digest()), text)
        worker = new_worker(f"worker{number}@test").serve(served, publish=False).announce()
        client.submit(header(f"c{number}", imports=["pandas"]))
        assert worker.receive_header()[1].checkpoint_id is None
        redis.flushall()


def test_a_pin_skips_the_scoring(client: Client, new_worker: NewWorker) -> None:
    worker = new_worker().serve(catalogue(NUMPY, PANDAS)).announce()
    client.submit(header("c", imports=["pandas"], pin="checkpoint_0"))
    _, placement = worker.receive_header()
    assert placement.checkpoint_id == "checkpoint_0"
    assert placement.predicted_seconds == pytest.approx(0.1 + 0.015 + 0.7)


def test_a_pin_goes_to_a_worker_that_has_the_checkpoint(client: Client, new_worker: NewWorker) -> None:
    lacking = new_worker("a-lacking@test", slots=100).serve(catalogue(PANDAS, generation="one")).announce()
    having = new_worker("having@test", slots=2).serve(catalogue(NUMPY, PANDAS, generation="two")).announce()
    client.submit(header("first", imports=["pandas"], pin="checkpoint_2"))
    client.submit(header("second", imports=["pandas"], pin="checkpoint_2"))
    client.submit(header("third", imports=["pandas"], pin="checkpoint_2"))
    client.waits_for("third", "all workers that have checkpoint_2 are full")
    assert having.queued() == 2
    assert lacking.queued() == 0


def test_an_unknown_pin_is_refused_naming_what_is_there(client: Client, new_worker: NewWorker) -> None:
    new_worker("one@test").serve(catalogue(NUMPY, PANDAS)).announce()
    new_worker("two@test").announce()
    client.submit(header("c", pin="checkpoint_9"))
    end = client.end("c")
    assert end.state is CallState.FAILED
    assert end.failure is not None
    assert end.failure.code is ErrorCode.INVALID_REQUEST
    assert "'checkpoint_9'" in end.failure.message
    assert "checkpoint_0, checkpoint_1, checkpoint_2" in end.failure.message


def test_a_pin_is_unknown_where_no_worker_serves_checkpoints(client: Client, new_worker: NewWorker) -> None:
    new_worker().announce()
    client.submit(header("c", pin="checkpoint_0"))
    failure = client.end("c").failure
    assert failure is not None
    assert failure.code is ErrorCode.INVALID_REQUEST


def test_a_pin_together_with_an_opt_out_is_refused_even_with_no_worker_there(client: Client) -> None:
    client.submit(header("c", pin="checkpoint_0", cold=True))
    failure = client.end("c").failure
    assert failure is not None
    assert failure.code is ErrorCode.INVALID_REQUEST
    assert "disable_optimized_execution" in failure.message


def test_a_call_from_another_python_is_refused_naming_both_versions(client: Client, new_worker: NewWorker) -> None:
    new_worker("one@test", python="3.11").announce()
    new_worker("two@test", python="3.12").announce()
    client.submit(header("c", python="3.9"))
    failure = client.end("c").failure
    assert failure is not None
    assert failure.code is ErrorCode.INCOMPATIBLE_PYTHON
    assert "3.9" in failure.message
    assert "3.11, 3.12" in failure.message


def test_a_call_goes_to_a_worker_of_its_python_and_waits_for_one_when_they_are_full(
    client: Client, new_worker: NewWorker
) -> None:
    other = new_worker("other@test", python="3.12", slots=100).announce()
    same = new_worker("same@test", python="3.11", slots=1).announce()
    client.submit(header("first"))
    client.submit(header("second"))
    client.waits_for("second", "all workers with Python 3.11 are full")
    assert (same.queued(), other.queued()) == (1, 0)


def test_refused_calls_leave_nothing_behind(client: Client, new_worker: NewWorker, redis: Redis) -> None:
    new_worker().announce()
    client.submit(header("c", python="3.9"))
    client.end("c")
    client.submit(header("after"))
    client.end_of_queue()
    assert redis.zrange(keys.PENDING, 0, -1) == [b"after"]
    assert redis.ttl(keys.call("c")) > 0
    assert client.taken() == 0


def test_celerys_headers_and_the_body_reach_the_worker_unchanged(client: Client, new_worker: NewWorker) -> None:
    worker = new_worker().announce()
    call = header("c", imports=["numpy"])
    sent = client.sent(call)
    sent["headers"]["stamps"] = {"session": ["s1"]}
    sent["headers"]["stamped_headers"] = ["session"]
    sent["headers"]["traceparent"] = "00-1-2-03"
    client.submit_message("c", sent)
    received = worker.receive()
    own = received["headers"].pop("readie")
    del sent["headers"]["readie"]
    assert received["headers"] == sent["headers"]
    assert received["body"] == sent["body"]
    assert received["content-type"] == sent["content-type"]
    assert received["content-encoding"] == sent["content-encoding"]
    properties = received["properties"]
    assert properties["correlation_id"] == sent["properties"]["correlation_id"]
    assert properties["reply_to"] == sent["properties"]["reply_to"]
    assert properties["delivery_info"]["routing_key"] == keys.worker_queue(worker.name)
    del own["placement"]
    assert own == call.model_dump(mode="json", exclude_defaults=True)


def test_a_doubled_message_is_placed_once(client: Client, new_worker: NewWorker, redis: Redis) -> None:
    worker = new_worker().announce()
    call = header("c")
    client.submit(call)
    for _ in range(3):
        redis.lpush(keys.SUBMIT_QUEUE, message(call))
    client.submit(header("after"))
    assert [worker.receive_header()[0].id for _ in range(2)] == ["c", "after"]
    client.end_of_queue()
    assert worker.queued() == 0
    assert client.taken() == 0


def test_a_message_of_a_call_that_is_unknown_or_has_ended_is_dropped(
    client: Client, new_worker: NewWorker, redis: Redis
) -> None:
    worker = new_worker().announce()
    client.ledger.submit("ended", message(header("ended")), "client")
    client.ledger.finish(Envelope(id="ended", state=CallState.CANCELLED), attempt=0, keep_seconds=60)
    redis.lpush(keys.SUBMIT_QUEUE, message(header("unknown")))
    client.submit(header("after"))
    assert worker.receive_header()[0].id == "after"
    client.end_of_queue()
    assert worker.queued() == 0
    assert client.taken() == 0


def test_a_header_that_claims_to_be_placed_is_placed_anew(client: Client, new_worker: NewWorker) -> None:
    worker = new_worker().serve(catalogue(PANDAS)).announce()
    sent = client.sent(header("c", imports=["pandas"]))
    sent["headers"]["readie"]["placement"] = {
        "worker": "other@test",
        "incarnation": "x",
        "attempt": 7,
        "checkpoint_id": "nothing",
        "reason": "forged",
    }
    client.submit_message("c", sent)
    _, placement = worker.receive_header()
    assert (placement.worker, placement.attempt, placement.checkpoint_id) == (worker.name, 1, "checkpoint_1")


old_picture = pytest.mark.parametrize("router", [{"fleet_max_age_seconds": 1e6}], indirect=True)
"""A router that looks at the workers again only when it has a reason to."""


@old_picture
def test_an_old_picture_of_the_fleet_makes_no_call_wait_for_a_slot_that_is_free(
    client: Client, new_worker: NewWorker
) -> None:
    worker = new_worker(slots=1).announce()
    for number in range(20):
        client.submit(header(f"c{number}"))
        call = worker.begin()
        assert worker.finish(call)


@old_picture
def test_an_old_picture_of_the_fleet_refuses_no_call_that_a_new_worker_can_take(
    client: Client, new_worker: NewWorker
) -> None:
    other = new_worker("other@test", python="3.12").announce()
    client.submit(header("first", python="3.12"))
    other.begin()
    new = new_worker("new@test", python="3.11").announce()
    client.submit(header("second", python="3.11"))
    assert new.begin().id == "second"


@old_picture
def test_a_call_is_not_placed_on_a_worker_that_is_gone_or_was_restarted(client: Client, new_worker: NewWorker) -> None:
    gone, restarted = new_worker("gone@test", slots=9).announce(), new_worker("restarted@test", slots=9).announce()
    client.submit(header("first"))
    client.submit(header("second"))
    assert {gone.begin().id, restarted.begin().id} == {"first", "second"}
    gone.vanish()
    restarted.restart()
    for number in range(4):
        client.submit(header(f"c{number}"))
        assert restarted.begin().id == f"c{number}"
    assert gone.queued() == 0


@old_picture
def test_a_new_generation_is_used_without_a_restart(client: Client, new_worker: NewWorker) -> None:
    worker = new_worker(slots=2).serve(catalogue(NUMPY, generation="old")).announce()
    client.submit(header("before", imports=["pandas"]))
    assert worker.begin().placement.checkpoint_id == "checkpoint_1"  # type: ignore[union-attr]
    worker.serve(catalogue(PANDAS, NUMPY, generation="new")).announce()
    client.submit(header("pin", pin="checkpoint_2"))
    assert worker.receive_header()[1].checkpoint_id == "checkpoint_2"


@old_picture
def test_a_slot_that_a_doubled_message_did_not_take_stays_free(
    client: Client, new_worker: NewWorker, redis: Redis
) -> None:
    worker = new_worker(slots=2).announce()
    call = header("first")
    client.submit(call)
    assert worker.begin().id == "first"
    for _ in range(3):
        redis.lpush(keys.SUBMIT_QUEUE, message(call))
        client.end_of_queue()
    client.submit(header("second"))
    assert worker.begin().id == "second"


def test_a_call_goes_where_a_restored_sandbox_waits_for_it(client: Client, new_worker: NewWorker) -> None:
    served = catalogue(NUMPY, PANDAS)
    workers = [new_worker(f"worker{number}@test").serve(served).announce() for number in range(3)]
    workers[1].make_ready(checkpoint_2=1)
    client.submit(header("c", imports=["pandas"]))
    _, placement = workers[1].receive_header()
    assert placement.checkpoint_id == "checkpoint_2"
    assert placement.predicted_seconds == 0.0


@pytest.mark.parametrize("router", [{"fleet_max_age_seconds": 0}], indirect=True)
def test_ready_sandboxes_that_can_not_be_read_count_as_none(client: Client, new_worker: NewWorker) -> None:
    worker = new_worker().serve(catalogue(NUMPY, PANDAS)).announce()
    for number, text in enumerate(["garbage", "[]", '{"checkpoint_1": "many"}', "5"]):
        client.redis.hset(keys.worker(worker.name), "ready", text)
        client.submit(header(f"c{number}", imports=["pandas"]))
        call, placement = worker.receive_header()
        assert placement.predicted_seconds == pytest.approx(0.176)
        client.ledger.cancel(call.id)


@pytest.mark.parametrize("router", [{"fleet_max_age_seconds": 0}], indirect=True)
def test_a_checkpoint_that_failed_to_restore_is_avoided_for_a_while(
    client: Client, new_worker: NewWorker, redis: Redis
) -> None:
    worker = new_worker().serve(catalogue(NUMPY, PANDAS)).announce()
    worker.ledger.avoid(worker.name, "checkpoint_2")
    client.submit(header("during", imports=["pandas"]))
    assert worker.receive_header()[1].checkpoint_id == "checkpoint_1"
    assert redis.ttl(keys.worker_avoided(worker.name)) > 0
    # As if that while were over.
    redis.zadd(keys.worker_avoided(worker.name), {"checkpoint_2": 1.0})
    client.submit(header("after", imports=["pandas"]))
    assert worker.receive_header()[1].checkpoint_id == "checkpoint_2"


def test_what_calls_need_together_is_counted_for_planning(
    client: Client, redis: Redis, router: None, new_worker: Callable[..., Worker]
) -> None:
    new_worker().announce()
    for number in range(3):
        client.submit(header(f"call{number}", imports=("pandas", "numpy")))
    expected = {("numpy", "pandas"): 3.0}
    eventually(lambda: read_traffic(redis, "default") == expected, "the router counts them")
