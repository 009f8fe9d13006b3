"""Reads what is on a queue, and says of what is no call why it is none. Router and worker trust nothing else.

Whoever can push to a queue can put anything there, and Celery's own consumer ends at the first item of another shape.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from . import keys
from .call import CallHeader
from .explain import ExplainRequest
from .owner import ID_PATTERN
from .signing import BadSignatureError, Keyring
from .task import HEADER

MOST_ITEM_BYTES: Final = 256 * 1024
"""A message whose payload is inline has less than a tenth of it."""
_MOST_REASON: Final = 500
_ID: Final = re.compile(ID_PATTERN)
_BODY: Final = re.compile(
    rb'\s*\[\s*\[\s*(?:null|"[A-Za-z0-9+/=]*")\s*\]\s*,\s*\{\s*\}\s*,'
    rb'\s*\{\s*(?:"(?:callbacks|errbacks|chain|chord)"\s*:\s*null\s*,?\s*){4}\}\s*\]\s*'
)
"""One argument, text or null, and nothing to be called afterwards. A body of another shape ends a Celery worker."""


class _Headers(BaseModel):
    """What Celery's worker reads of the headers; it ends when their types are not these."""

    model_config = ConfigDict(strict=True)

    lang: str
    task: str
    id: str
    shadow: str | None
    eta: None
    expires: None
    timelimit: list[None]
    retries: int
    root_id: str | None
    parent_id: str | None
    argsrepr: str
    kwargsrepr: str
    ignore_result: bool
    group: None = None
    stamped_headers: list[str] | None = None
    stamps: dict[str, Any] | None = None
    origin: str | None = None


class _DeliveryInfo(BaseModel):
    model_config = ConfigDict(strict=True)

    exchange: str
    routing_key: str


class _Properties(BaseModel):
    """What kombu and Celery's worker read of the properties."""

    model_config = ConfigDict(strict=True)

    delivery_tag: str
    delivery_info: _DeliveryInfo
    body_encoding: Literal["base64"]
    correlation_id: str | None = None
    reply_to: str | None = None
    priority: int | None = None


ReadPlaced = Callable[[bytes], tuple[Any, CallHeader]]
"""Like :func:`read_placed`, of whoever knows the keys."""


class UnreadableError(Exception):
    """An item of a queue is neither a call nor a question.

    Attributes:
        call_id: the id of a call that it carries, as far as one can be read.
        question_id: likewise of a question.
        forged: whether it was readable, but not signed as it must be.
    """

    def __init__(
        self, reason: str, call_id: str | None = None, question_id: str | None = None, *, forged: bool = False
    ) -> None:
        # Half a character of an item would make whatever says the reason unspeakable.
        super().__init__(reason[:_MOST_REASON].encode("utf-8", "backslashreplace").decode())
        self.call_id = call_id
        self.question_id = question_id
        self.forged = forged


def read(item: bytes) -> tuple[Any, CallHeader | ExplainRequest]:
    """Return an item as JSON, and the call's header or the question that it stands for.

    Raises:
        UnreadableError: whatever is wrong with it.
    """
    if len(item) > MOST_ITEM_BYTES:
        raise UnreadableError(f"too large: {len(item)} bytes, the limit is {MOST_ITEM_BYTES}")
    try:
        raw = json.loads(item)
    # RecursionError: brackets nested a hundred thousand deep.
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"not JSON: {error}") from error
    if isinstance(raw, dict) and raw.get("task") == keys.EXPLAIN_TASK:
        return raw, _read_question(raw)
    call_id = _id_of(raw.get("headers") if isinstance(raw, dict) else None)
    try:
        return raw, _read_call(raw)
    except UnreadableError as error:
        raise UnreadableError(str(error), call_id) from error
    except ValidationError as error:
        raise UnreadableError(f"bad header: {_first_problem(error)}", call_id) from error
    except (LookupError, TypeError, AttributeError) as error:
        raise UnreadableError(f"not a Celery message: {error!r}", call_id) from error


def read_signed(item: bytes, keyring: Keyring, max_age_seconds: float) -> tuple[Any, CallHeader | ExplainRequest]:
    """Return what :func:`read` returns, of who has a signing key.

    Raises:
        UnreadableError: also for what is not signed as it must be.
    """
    raw, content = read(item)
    try:
        keyring.check_call(content.header if isinstance(content, ExplainRequest) else content, max_age_seconds)
    except BadSignatureError as error:
        if isinstance(content, ExplainRequest):
            raise UnreadableError(str(error), question_id=content.id, forged=True) from error
        raise UnreadableError(str(error), content.id, forged=True) from error
    return raw, content


def read_placed(item: bytes, keyring: Keyring, max_age_seconds: float) -> tuple[Any, CallHeader]:
    """Return a call that a router has sent to a worker.

    Raises:
        UnreadableError: it is anything else.
    """
    raw, header = read_signed(item, keyring, max_age_seconds)
    if isinstance(header, ExplainRequest):
        raise UnreadableError("a question, which only a router answers")
    try:
        keyring.check_placement(header)
    except BadSignatureError as error:
        raise UnreadableError(str(error), header.id, forged=True) from error
    return raw, header


@dataclass(frozen=True, slots=True)
class PlacedReader:
    """Reads as :func:`read_placed` does, with the keys of this process."""

    keyring: Keyring
    max_age_seconds: float

    def __call__(self, item: bytes) -> tuple[Any, CallHeader]:
        """Return a call that a router has sent to a worker."""
        return read_placed(item, self.keyring, self.max_age_seconds)


def read_argument(raw: dict[str, Any]) -> str | None:
    """Return the task's one argument of a call that :func:`read` has read."""
    argument: str | None = json.loads(base64.b64decode(raw["body"]))[0][0]
    return argument


def _read_question(raw: dict[str, Any]) -> ExplainRequest:
    try:
        return ExplainRequest.model_validate(raw)
    except ValidationError as error:
        raise UnreadableError(f"bad question: {_first_problem(error)}", question_id=_id_of(raw)) from error


def _read_call(raw: Any) -> CallHeader:
    headers = raw["headers"]
    if headers["task"] != keys.TASK_NAME:
        raise UnreadableError(f"another task: {str(headers['task'])[:100]!r}, this queue is for {keys.TASK_NAME!r}")
    if raw["content-type"] != "application/json" or raw["content-encoding"] != "utf-8":
        raise UnreadableError(
            f"content type {raw['content-type']!r} in {raw['content-encoding']!r}, not application/json in utf-8"
        )
    if "compression" in headers:
        raise UnreadableError("the body is compressed")
    _Properties.model_validate(raw["properties"])
    header = CallHeader.model_validate(headers[HEADER])
    if _Headers.model_validate(headers).id != header.id:
        raise UnreadableError(f"the task id {headers['id'][:100]!r} is not the call's, {header.id!r}")
    try:
        body = base64.b64decode(raw["body"], validate=True)
    except (TypeError, binascii.Error, ValueError) as error:
        raise UnreadableError("the body is not base64 text") from error
    if not _BODY.fullmatch(body):
        raise UnreadableError("the body is not one argument")
    return header


def _id_of(content: Any) -> str | None:
    found = content.get("id") if isinstance(content, dict) else None
    return found if isinstance(found, str) and _ID.fullmatch(found) else None


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"{where}: not known to this release: upgrade workers and routers before clients"
    return f"{where}: {problem['msg']}" if where else problem["msg"]
