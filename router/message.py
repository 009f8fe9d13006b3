"""Celery task messages as kombu puts them on Redis lists: read the header, readdress, never decode the payload."""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kombu.connection import Connection
from kombu.message import Message as KombuMessage

from readie.protocol import keys, reading
from readie.protocol.call import CallHeader, Placement
from readie.protocol.explain import ExplainRequest
from readie.protocol.signing import Keyring
from readie.protocol.task import HEADER


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
        keyring: what calls must be signed with, and placements are.
        signature_seconds: how long after it was signed a call may begin.
    """

    def __init__(self, broker: Connection, keyring: Keyring, signature_seconds: float) -> None:
        self._broker = broker
        self._keyring = keyring
        self._signature_seconds = signature_seconds

    @cached_property
    def _channel(self) -> Any:
        # Connects, so not before Redis is known to be there. kombu has no types.
        return self._broker.channel()  # type: ignore[no-untyped-call]

    def read(self, item: bytes) -> CallMessage | ExplainRequest:
        """Return the call or the question that an item of the submit queue stands for.

        Raises:
            UnreadableError: whatever is wrong with it.
        """
        raw, content = reading.read_signed(item, self._keyring, self._signature_seconds)
        if isinstance(content, ExplainRequest):
            return content
        return CallMessage(content, self._channel.Message(raw, channel=self._channel))

    def readdress(self, message: CallMessage, placement: Placement) -> tuple[CallHeader, str]:
        """Return the header with the placement, and the item for the worker's queue. Celery's headers are kept."""
        header = self._keyring.sign_placement(message.header.model_copy(update={"placement": placement}))
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
