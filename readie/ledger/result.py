"""The stored result: our envelope inside what Celery's Redis backend stores, so that ``AsyncResult`` reads it too."""

import json
from datetime import UTC, datetime
from typing import Any

from readie.protocol.envelope import CallState, Envelope

_STATUS = {
    CallState.DONE: "SUCCESS",
    CallState.FAILED: "FAILURE",
    CallState.CANCELLED: "REVOKED",
    CallState.EXPIRED: "REVOKED",
}


def encode_result(envelope: Envelope) -> tuple[str, str]:
    """Return the JSON text before and after the end time, which only the ledger's script knows.

    A success has the envelope as Celery's ``result``; anything else has the exception as Celery writes one there, and
    the envelope beside it.
    """
    content = envelope.model_dump(mode="json", exclude_defaults=True)
    meta: dict[str, Any] = {
        "task_id": envelope.id,
        "status": _STATUS[envelope.state],
        "traceback": None,
        "children": [],
        "date_done": datetime.now(UTC).isoformat(),
    }
    if envelope.failure is None:
        meta["result"] = content
    else:
        failure = envelope.failure
        module, _, name = failure.type.rpartition(".")
        meta |= {
            "result": {
                "exc_type": name or failure.code.value,
                "exc_message": [failure.message],
                "exc_module": module or None,
            },
            "traceback": failure.traceback or None,
            "readie": content,
        }
    text = json.dumps(meta, separators=(",", ":"))
    return text[:-1] + ',"ended_at":', "}"


def decode_result(text: bytes) -> Envelope:
    """Return the envelope of a stored result.

    Raises:
        ValueError: the text is not one of ours.
    """
    meta = json.loads(text)
    if not isinstance(meta, dict):
        raise ValueError("a stored result is not a JSON object")
    content = meta.get("readie", meta.get("result"))
    if not isinstance(content, dict):
        raise ValueError("a stored result has no envelope")
    return Envelope.model_validate({**content, "ended_at": meta.get("ended_at", 0.0)})
