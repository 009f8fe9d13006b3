"""Hearing a pub/sub channel, and noticing when nothing can be heard any more."""

from typing import Final, Self, cast

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

_SILENCE_SECONDS: Final = 15.0
"""Bounds what any lost message can cost."""
_ANSWER_SECONDS: Final = 3.0


class Subscription:
    """One channel, heard on a connection of its own that is known to be alive.

    Args:
        redis: where.
        channel: what is heard; an empty message on it means nothing.
        pattern: channels that are heard as well.
    """

    def __init__(self, redis: Redis, channel: str, pattern: str | None = None) -> None:
        self._redis = redis
        self._channel = channel
        self._pubsub = redis.pubsub()  # type: ignore[no-untyped-call]
        if pattern is not None:
            self._pubsub.psubscribe(pattern)
        self._pubsub.subscribe(channel)
        self._asked = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pubsub.close()

    def hear(self) -> bytes | None:
        """Return the next message, ``None`` at the beginning and after 15 s of silence: any may have been missed then.

        Raises:
            RedisError: nothing more will be heard here.
        """
        while True:
            heard = self._pubsub.get_message(timeout=_ANSWER_SECONDS if self._asked else _SILENCE_SECONDS)
            if heard is None:
                if self._asked:
                    raise RedisConnectionError("the subscription's connection has fallen silent")
                # A connection whose other end is gone says nothing, like one on which nothing happens.
                self._asked = True
                self._redis.publish(self._channel, b"")
                return None
            self._asked = False
            if heard["type"] == "subscribe":
                return None
            if heard["type"] in ("message", "pmessage"):
                return cast("bytes", heard["data"])
