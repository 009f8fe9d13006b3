"""Celery's task message (protocol 2) as kombu's Redis transport puts it on a list.

Built here, because a client that imported Celery for it would take longer to start than a call takes to run.
``tests/protocol`` holds it against what Celery itself writes and reads.
"""

import base64
import json
from typing import Final

from .call import CallHeader
from .keys import SUBMIT_QUEUE, TASK_NAME

HEADER: Final = "readie"
"""Name of the Celery message header that carries a :class:`~readie.protocol.call.CallHeader`."""


def encode(header: CallHeader, body: str, origin: str) -> str:
    """Return the JSON list item for a call.

    Args:
        header: the call's header; travels as the message header :data:`HEADER`.
        body: what :func:`encode_body` made.
        origin: who sends it, for people.
    """
    message = {
        "body": body,
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {
            "lang": "py",
            "task": TASK_NAME,
            "id": header.id,
            "shadow": header.name,
            "eta": None,
            "expires": None,
            "group": None,
            "group_index": None,
            "retries": 0,
            "timelimit": [None, None],
            "root_id": header.id,
            "parent_id": None,
            "argsrepr": f"<{header.payload_bytes} bytes>",
            "kwargsrepr": "{}",
            "origin": origin,
            # The worker stores the result itself, in one step with the call's record.
            "ignore_result": True,
            "replaced_task_nesting": 0,
            "stamped_headers": None,
            "stamps": {},
            HEADER: header.model_dump(mode="json", exclude_defaults=True),
        },
        "properties": {
            "correlation_id": header.id,
            "reply_to": header.id,
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": SUBMIT_QUEUE},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": header.id,
        },
    }
    return json.dumps(message, separators=(",", ":"))


def encode_body(payload: bytes | None) -> str:
    """Return the message body for a payload, or for none when it is stored by reference."""
    argument = None if payload is None else base64.b64encode(payload).decode("ascii")
    embed = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    return base64.b64encode(json.dumps([[argument], {}, embed], separators=(",", ":")).encode()).decode("ascii")


def decode_argument(argument: str | None) -> bytes | None:
    """Return the payload from the task's one argument (the opposite of what :func:`encode_body` put there)."""
    return None if argument is None else base64.b64decode(argument, validate=True)
