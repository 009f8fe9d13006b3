"""Celery task messages as kombu puts them on Redis lists: read the header, readdress, never decode the payload."""

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from kombu.connection import Connection
from kombu.message import Message as KombuMessage
from pydantic import BaseModel, ConfigDict, ValidationError

from readie.protocol import keys
from readie.protocol.call import CallHeader, Placement
from readie.protocol.task import HEADER

MOST_ITEM_BYTES: Final = 256 * 1024
"""A message whose payload is inline has less than a tenth of it."""
_MOST_REASON: Final = 500
_CALL_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_BODY: Final = re.compile(
    rb'\s*\[\s*\[\s*(?:null|"[A-Za-z0-9+/=]*")\s*\]\s*,\s*\{\s*\}\s*,'
    rb'\s*\{\s*(?:"(?:callbacks|errbacks|chain|chord)"\s*:\s*null\s*,?\s*){4}\}\s*\]\s*'
)
"""One argument, text or null, and nothing to be called afterwards. A body of another shape ends a Celery worker."""


class _CeleryHeaders(BaseModel):
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


class UnreadableError(Exception):
    """An item of the submit queue is not a call.

    Attributes:
        call_id: the id it carries, as far as one can be read.
    """

    def __init__(self, reason: str, call_id: str | None = None) -> None:
        super().__init__(reason[:_MOST_REASON])
        self.call_id = call_id


@dataclass(frozen=True, slots=True)
class CallMessage:
    """A readable message: its call's header, and what kombu made of the rest."""

    header: CallHeader
    kombu: KombuMessage


class MessageFormat:
    """Reads and writes messages as kombu's transport for the broker does.

    Args:
        broker: the connection whose transport defines the format. Items are not taken or sent through it: kombu's own
            consumer loses what it has taken when it is killed, and ends at the first item that is not JSON.
    """

    def __init__(self, broker: Connection) -> None:
        self._broker = broker

    @cached_property
    def _channel(self) -> Any:
        # Connects, so not before Redis is known to be there. kombu has no types.
        return self._broker.channel()  # type: ignore[no-untyped-call]

    def read(self, item: bytes) -> CallMessage:
        """Return the call an item of the submit queue stands for.

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
        try:
            return self._read(raw)
        except UnreadableError as error:
            raise UnreadableError(str(error), _call_id(raw)) from error
        except ValidationError as error:
            raise UnreadableError(f"bad header: {_first_problem(error)}", _call_id(raw)) from error
        except Exception as error:
            # kombu trusts what is on its lists: a message of another shape fails in as many ways as there are shapes.
            raise UnreadableError(f"not a Celery message: {error!r}", _call_id(raw)) from error

    def _read(self, raw: Any) -> CallMessage:
        headers = raw["headers"]
        if headers["task"] != keys.TASK_NAME:
            raise UnreadableError(f"another task: {str(headers['task'])[:100]!r}, this queue is for {keys.TASK_NAME!r}")
        if raw["content-type"] != "application/json" or raw["content-encoding"] != "utf-8":
            raise UnreadableError(
                f"content type {raw['content-type']!r} in {raw['content-encoding']!r}, not application/json in utf-8"
            )
        if "compression" in headers:
            raise UnreadableError("the body is compressed")
        if not isinstance(raw["body"], str) or raw["properties"]["body_encoding"] != "base64":
            raise UnreadableError("the body is not base64 text")
        header = CallHeader.model_validate(headers[HEADER])
        if _CeleryHeaders.model_validate(headers).id != header.id:
            raise UnreadableError(f"the task id {headers['id'][:100]!r} is not the call's, {header.id!r}")
        message = self._channel.Message(raw, channel=self._channel)
        if not _BODY.fullmatch(message.body):
            raise UnreadableError("the body is not one argument")
        return CallMessage(header, message)

    def readdress(self, message: CallMessage, placement: Placement) -> tuple[CallHeader, str]:
        """Return the header with the placement, and the item for the worker's queue. Celery's headers are kept."""
        header = message.header.model_copy(update={"placement": placement})
        kombu = message.kombu
        properties = dict(kombu.properties)
        body, properties["body_encoding"] = self._channel.encode_body(kombu.body, self._channel.body_encoding)
        properties["delivery_info"] = {"exchange": "", "routing_key": keys.worker_queue(placement.worker)}
        properties["delivery_tag"] = f"{header.id}:{placement.attempt}"
        prepared = self._channel.prepare_message(
            body,
            content_type=kombu.content_type,
            content_encoding=kombu.content_encoding,
            headers={**kombu.headers, HEADER: header.model_dump(mode="json", exclude_defaults=True)},
            properties=properties,
        )
        return header, json.dumps(prepared, separators=(",", ":"))


def _call_id(raw: Any) -> str | None:
    headers = raw.get("headers") if isinstance(raw, dict) else None
    call_id = headers.get("id") if isinstance(headers, dict) else None
    return call_id if isinstance(call_id, str) and _CALL_ID.fullmatch(call_id) else None


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg']}" if where else problem["msg"]
