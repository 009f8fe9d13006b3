"""kombu's Redis transport, for a queue on which anything may lie.

kombu decodes what it pops before anybody can look at it, and a worker ends at the first item that is no message of
Celery's. Here every item of a worker's own queue is read as a router reads it; what is not a call becomes a dead letter
and is as if it had never been there.
"""

import functools
import logging
import time
from collections.abc import Callable
from typing import Any, ClassVar, Final

from celery.worker.state import maybe_shutdown
from kombu.transport import redis as kombu_redis
from redis import Redis
from redis.exceptions import ResponseError

from readie.ledger import Ledger
from readie.protocol import keys
from readie.protocol.dead_letter import DeadLetter
from readie.protocol.reading import PlacedReader, ReadPlaced, UnreadableError

_RETRY_SECONDS: Final = 0.5

_log = logging.getLogger(__name__)

_OWN_QUEUE = keys.worker_queue("").encode()


class _CarefulRedis(Redis):
    """Returns what is no call as if nothing had been popped.

    Args:
        read: reads an item.
        bury: gets each such item, its queue and what is wrong with it.
    """

    def __init__(
        self, *, read: ReadPlaced, bury: Callable[[bytes, str, UnreadableError], None], **options: Any
    ) -> None:
        super().__init__(**options)
        self._read = read
        self._bury = bury

    def parse_response(self, connection: Any, command_name: str, **options: Any) -> Any:
        """Return the reply to a command."""
        reply = super().parse_response(connection, command_name, **options)  # type: ignore[no-untyped-call]
        if command_name != "BRPOP" or not reply:
            return reply
        queue, item = reply
        if not queue.endswith(_OWN_QUEUE):
            return reply
        try:
            self._read(item)
        except UnreadableError as error:
            self._bury(item, queue.decode("utf-8", "replace"), error)
            return None
        return reply


class Channel(kombu_redis.Channel):
    """A channel of which every client is careful, and which keeps no copy of what it takes off the worker's own queue.

    A copy is of no use, the ledger knows what was lost; it would cost two round trips for every call.
    """

    # Set where the process is put together. Not options of the transport: `inspect stats` sends those around, as JSON.
    on_dead_letter: ClassVar[Callable[[], None] | None] = None
    """Called for each item that is buried."""
    read_placed: ClassVar[PlacedReader]
    """Reads the items of the worker's own queue."""

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **options: Any) -> Any:
        """Consume a queue."""
        own = queue.encode().endswith(_OWN_QUEUE)
        return super().basic_consume(queue, no_ack or own, *args, **options)  # type: ignore[no-untyped-call]

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledge a message, of which there is no copy."""

    def _get_client(self) -> Callable[..., Redis]:
        return functools.partial(_CarefulRedis, read=self.read_placed, bury=self._bury)

    def _bury(self, item: bytes, queue: str, error: UnreadableError) -> None:
        _log.error("dropped what is no call: queue=%s bytes=%d reason=%r", queue, len(item), str(error))
        with self.conn_or_acquire() as client:
            Ledger(client).bury(DeadLetter.of(item, queue, str(error)), forged=error.forged)
        if Channel.on_dead_letter is not None:
            Channel.on_dead_letter()


class SentinelChannel(Channel, kombu_redis.SentinelChannel):
    """Likewise, to the Redis that Sentinels name."""


class Transport(kombu_redis.Transport):
    """What ``broker_transport`` of the app names."""

    Channel: type[kombu_redis.Channel] = Channel

    # Celery's worker ends at an error that is none of its connection's. But a Redis that refuses a command, for want of
    # memory or because it is a replica now, will take it later.
    connection_errors = (*kombu_redis.Transport.connection_errors, ResponseError)

    def establish_connection(self) -> Any:
        """Connect, as soon as Redis is there: Celery would look less and less often."""
        while True:
            try:
                return super().establish_connection()  # type: ignore[no-untyped-call]
            except self.connection_errors as error:
                maybe_shutdown()
                _log.warning("can't connect to the broker, trying again: %s", error)
                time.sleep(_RETRY_SECONDS)


class SentinelTransport(Transport):
    """The same, for a URL of Sentinels."""

    Channel = SentinelChannel
