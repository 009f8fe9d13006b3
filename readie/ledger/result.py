"""The stored result: our envelope inside what Celery's Redis backend stores, so that ``AsyncResult`` reads it too."""

import json
from datetime import UTC, datetime
from typing import Any

from readie.protocol.envelope import CallState, Envelope, Failure

_ENDED_AT = ',"ended_at":'
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
    return text[:-1] + _ENDED_AT, "}"


def encode_template(failure: Failure) -> tuple[str, str]:
    """Return the result of any call that fails alike, before and after the end time.

    ``@call@`` stands for the call's id and ``@submitted@`` for when it was submitted (a number): only the ledger's
    script knows them.
    """
    before, after = encode_result(Envelope(id="@call@", state=CallState.FAILED, failure=failure))
    return before.removesuffix(_ENDED_AT) + ',"submitted_at":@submitted@' + _ENDED_AT, after


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
    times = {name: meta[name] for name in ("submitted_at", "ended_at") if name in meta}
    return Envelope.model_validate({**content, **times})
