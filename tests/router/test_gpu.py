"""``gpu=True`` runs where sandboxes have a GPU, and is refused where none has."""

from collections.abc import Callable

from router_cluster import Worker, header

from readie.protocol.codes import ErrorCode
from router.needs import Needs, Refused, WorkerState, fitting


def test_a_call_for_a_gpu_goes_to_a_worker_that_has_one_and_is_refused_without(
    new_worker: Callable[..., Worker],
) -> None:
    call = header("c")
    needs = Needs.of(call.model_copy(update={"options": call.options.model_copy(update={"gpu": True})}))
    plain = WorkerState(new_worker("plain@test").announcement, None, busy=0)
    refused = fitting(needs, [plain])
    assert isinstance(refused, Refused)
    assert refused.code is ErrorCode.RESOURCE_EXHAUSTED
    assert "gpu=True" in refused.message
    assert "leave gpu out" in refused.message
    equipped = WorkerState(new_worker("equipped@test").announcement.model_copy(update={"gpu": True}), None, busy=0)
    assert fitting(needs, [plain, equipped]) == [equipped]
    assert fitting(Needs.of(call), [plain, equipped]) == [plain, equipped]
    assert Needs.of_group(needs.group()) == needs
