"""Answers what would become of a call now, and why."""

import logging

from readie.ledger.routing import RoutingLedger
from readie.protocol.call import CallHeader, ImportHints
from readie.protocol.codes import ErrorCode
from readie.protocol.envelope import Failure
from readie.protocol.explain import ExplainAnswer, ExplainRequest, StartCost

from .catalogue import CompiledCatalogue, Resolution
from .fleet import Fleet
from .needs import Needs, Nobody, Refused, WorkerState
from .placement import contradicts_itself, reason, soonest, ways
from .scoring import Prediction

log = logging.getLogger(__name__)


def explain(header: CallHeader, fleet: Fleet) -> ExplainAnswer:
    """Return what a router would do with a call, given what it has just seen of the workers."""
    answer = ExplainAnswer(hints=header.hints)
    needs = Needs.of(header)
    found = contradicts_itself(header) or fleet.candidates.fitting(needs)
    if isinstance(found, Refused):
        return answer.model_copy(update={"failure": Failure(code=found.code, message=found.message)})
    if isinstance(found, Nobody):
        return answer.model_copy(update={"waits_for": found.why})
    free = [worker for worker in found if worker.has_room(needs)]
    # What waits for room is explained by the worker where it would start soonest.
    worker, start = soonest(header, free or found)
    seen = _seen(header, worker)
    if not free:
        seen["waits_for"] = fleet.candidates.all_full(needs).why
    else:
        seen |= {
            "checkpoint_id": start.checkpoint_id,
            "predicted_seconds": start.predicted_seconds,
            "reason": reason(header, worker, start),
        }
    return answer.model_copy(update=seen)


def _seen(header: CallHeader, worker: WorkerState) -> dict[str, object]:
    announcement, catalogue = worker.announcement, worker.catalogue
    seen: dict[str, object] = {"worker": announcement.name, "generation": announcement.generation}
    if catalogue is not None:
        resolution = catalogue.resolve(header.hints)
        costs = [_cost(way, catalogue, resolution) for way in ways(catalogue.score(resolution), worker)]
        seen |= {
            "resolved": resolution.modules,
            "unknown": resolution.unknown,
            "starts": tuple(sorted(costs, key=lambda cost: round(cost.seconds, 9))),
        }
    return seen


def _cost(way: Prediction, catalogue: CompiledCatalogue, resolution: Resolution) -> StartCost:
    return StartCost(
        checkpoint_id=way.checkpoint_id,
        ready=way.ready,
        base_seconds=way.base_seconds,
        size_seconds=way.size_seconds,
        import_seconds=way.import_seconds,
        missing=catalogue.missing(resolution, way.checkpoint_id),
    )


class Explainer:
    """Answers the questions on the submit queue.

    Args:
        ledger: where the queue is.
        router: this router's id.
        fleet: the workers.
    """

    def __init__(self, ledger: RoutingLedger, router: str, fleet: Fleet) -> None:
        self._ledger = ledger
        self._router = router
        self._fleet = fleet

    def answer(self, request: ExplainRequest, item: bytes) -> None:
        """Answer a question and settle its item."""
        self._fleet.look()
        try:
            text = explain(request.header, self._fleet).model_dump_json()
        except Exception as error:
            # Whatever it is, it must not come back with this question for ever.
            log.exception("unexpected: question=%s", request.id)
            self.refuse(request.id, item, repr(error))
        else:
            self._ledger.answer(self._router, item, request.id, text)
            log.info("explained: question=%s", request.id)

    def refuse(self, question_id: str, item: bytes, why: str) -> None:
        """Say to whoever asked that there is no answer, and settle the item."""
        failure = Failure(code=ErrorCode.INVALID_REQUEST, message=f"the router can't answer: {why}")
        answer = ExplainAnswer(hints=ImportHints(), failure=failure)
        self._ledger.answer(self._router, item, question_id, answer.model_dump_json())
