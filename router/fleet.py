"""The live workers and their catalogues, as last seen in Redis."""

import logging
import time
from typing import Final

from pydantic import ValidationError
from redis import Redis

from readie.ledger.routing import RoutingLedger
from readie.protocol import keys
from readie.protocol.announcement import Announcement, decode_ready
from readie.protocol.catalogue import Catalogue

from .candidates import Candidates, turn
from .catalogue import CompiledCatalogue
from .needs import WorkerState

_UNUSED_CATALOGUES: Final = 16
_RETRY_CATALOGUE_SECONDS: Final = 2.0
_SHORT_LOOK_SECONDS: Final = 0.005
"""A picture may get older where a look takes longer: that of thousands of workers keeps router and Redis busy."""
_NOTHING_READY: Final = b"{}"

log = logging.getLogger(__name__)


class Catalogues:
    """Compiled catalogues by digest, loaded from Redis when first asked for."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._compiled: dict[str, CompiledCatalogue] = {}
        self._retry_at: dict[str, float] = {}

    def get(self, digest: str) -> CompiledCatalogue | None:
        """Return a catalogue, ``None`` when it is not in Redis or not readable (asked again after a while)."""
        compiled = self._compiled.get(digest)
        if compiled is None and time.monotonic() >= self._retry_at.get(digest, 0.0):
            compiled = self._load(digest)
        return compiled

    def forget_unused(self, used: set[str]) -> None:
        """Drop catalogues that no worker serves any more, when there are many."""
        if len(self._compiled) > len(used) + _UNUSED_CATALOGUES:
            self._compiled = {digest: value for digest, value in self._compiled.items() if digest in used}
        if len(self._retry_at) > _UNUSED_CATALOGUES:
            self._retry_at = {digest: at for digest, at in self._retry_at.items() if digest in used}

    def _load(self, digest: str) -> CompiledCatalogue | None:
        started = time.monotonic()
        text = self._redis.get(keys.catalogue(digest))
        try:
            if not isinstance(text, bytes):
                raise TypeError("it is not in Redis")
            compiled = CompiledCatalogue(Catalogue.model_validate_json(text))
        # ArithmeticError: costs without end can't be counted in nanoseconds.
        except (TypeError, ValueError, ArithmeticError) as error:
            self._retry_at[digest] = time.monotonic() + _RETRY_CATALOGUE_SECONDS
            log.warning("catalogue unusable, its workers start cold: digest=%s error=%s", digest, error)
            return None
        self._retry_at.pop(digest, None)
        self._compiled[digest] = compiled
        log.info(
            "catalogue loaded: digest=%s generation=%s checkpoints=%d seconds=%.3f",
            digest[:12],
            compiled.generation,
            len(compiled.checkpoint_ids),
            time.monotonic() - started,
        )
        return compiled


class Fleet:
    """Every live worker.

    What was seen is used for ``max_age_seconds``: the ledger checks what is decided from it, and knows better.

    Args:
        ledger: where to look.
        router: this router's id.
        max_age_seconds: how old what was seen may get.
    """

    def __init__(self, ledger: RoutingLedger, router: str, max_age_seconds: float) -> None:
        self._ledger = ledger
        self._catalogues = Catalogues(ledger.redis)
        self._max_age_seconds = max_age_seconds
        self._router = router.encode()
        self._announcements: dict[bytes, tuple[bytes, Announcement | None]] = {}
        self.seen_at = float("-inf")
        """Monotonic clock, seconds."""
        self.candidates = Candidates([])
        """The workers as of then, less what was placed on them since."""
        self.capacity = "0"
        """The capacity counter as of :attr:`seen_at`."""
        self._look_seconds = 0.0

    def look(self) -> None:
        """See the workers as they are now, in one round trip."""
        self.seen_at = time.monotonic()
        look = self._ledger.look()
        known, self._announcements = self._announcements, {}
        self.capacity = look.capacity
        workers = []
        for name, seen in look.workers.items():
            text = seen.announcement
            before = known.get(name)
            announcement = before[1] if before and before[0] == text else _parse(name, text)
            self._announcements[name] = (text, announcement)
            if announcement is not None:
                digest = announcement.catalogue
                workers.append(
                    WorkerState(
                        announcement,
                        self._catalogues.get(digest) if digest is not None else None,
                        seen.busy,
                        seen.reserved_bytes,
                        _ready(seen.ready),
                        frozenset(checkpoint.decode("utf-8", "replace") for checkpoint in seen.avoided),
                        seen.sessions,
                        turn(self._router, name),
                    )
                )
        self.candidates = Candidates(workers)
        self._catalogues.forget_unused({w.announcement.catalogue for w in workers if w.announcement.catalogue})
        self._look_seconds = time.monotonic() - self.seen_at

    def look_if_old(self) -> None:
        """See the workers again unless that was done a moment ago."""
        oldest = self._max_age_seconds * max(1.0, self._look_seconds / _SHORT_LOOK_SECONDS)
        if time.monotonic() - self.seen_at > oldest:
            self.look()


def _parse(name: bytes, text: bytes) -> Announcement | None:
    try:
        return Announcement.model_validate_json(text)
    except ValidationError as error:
        log.warning("worker ignored, its announcement is unreadable: name=%r error=%s", name, error.errors()[0]["msg"])
        return None


def _ready(text: bytes) -> dict[str | None, int]:
    if text == _NOTHING_READY:
        return {}
    try:
        return decode_ready(text)
    except ValueError:
        return {}
