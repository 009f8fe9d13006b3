"""What people see of the ledger: lists of calls, and one call in full. Changes nothing."""

import fnmatch
import heapq
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, cast

from redis.exceptions import NoPermissionError, ResponseError

from readie.protocol import keys, task
from readie.protocol.call import CallHeader
from readie.protocol.envelope import CallState, Envelope, Report
from readie.protocol.record import CallDetails, CallRecord, Choice

from .recovery import RecoveryLedger
from .result import decode_result

_PAGE: Final = 1000
"""Keys or records that are asked for at once: some milliseconds of Redis' time."""
_FIELDS: Final = (
    *("state", "name", "client", "worker", "session", "attempt", "begun"),
    *("submitted_at", "placed_at", "started_at", "ended_at"),
)
_PREFIX: Final = keys.call("")


class Wanted(NamedTuple):
    """Which calls; what is empty or ``None`` leaves none out."""

    states: frozenset[CallState] = frozenset()
    function: str = ""
    """The name, or a pattern with ``*`` and ``?``."""
    worker: str = ""
    client: str | None = None
    since: float = 0.0
    """Submitted at this time (Redis clock, seconds) or later."""

    def fits(self, record: CallRecord) -> bool:
        """Return whether a call is one of these."""
        return (
            (not self.states or record.state in self.states)
            and (not self.function or fnmatch.fnmatchcase(record.function, self.function))
            and (not self.worker or record.worker == self.worker)
            and (self.client is None or record.client == self.client)
            and record.submitted_at >= self.since
        )


class _Rest(NamedTuple):
    """What there is of a call besides the fields of every record."""

    result: bytes | None
    message: bytes | None
    why: bytes | None
    """Why it is where it is."""
    waits_for: str
    withheld: bool
    """Whether Redis does not let this user read result and message."""


class ObservingLedger(RecoveryLedger):
    """The ledger with what lists and shows calls. Never takes long of Redis' time at once."""

    def calls(self, wanted: Wanted, most: int) -> list[CallRecord]:
        """Return the newest calls, ``most`` at the most, whose records are kept.

        Where only calls that have not ended are wanted, these alone are looked at; otherwise every record there is.
        """
        if wanted.states and not any(state.ended for state in wanted.states):
            pages = self._pages(self.pending_ids(wanted.since))
            return list(itertools.islice((record for page in pages for record in page if wanted.fits(record)), most))
        found: list[CallRecord] = []
        for page in self._pages(self.ids()):
            fitting = (record for record in page if wanted.fits(record))
            found = heapq.nlargest(most, itertools.chain(found, fitting), key=lambda record: record.submitted_at)
        return found

    def ids(self, prefix: str = "") -> Iterator[str]:
        """Yield the id of every call that begins so, in no order; one may come twice."""
        pattern = _PREFIX + re.sub(r"([*?\[\]\\])", r"\\\1", prefix) + "*"
        for key in self.redis.scan_iter(match=pattern, count=_PAGE):
            yield cast("bytes", key).decode(errors="replace").removeprefix(_PREFIX)

    def pending_ids(self, since: float = 0.0) -> Iterator[str]:
        """Yield the calls that have not ended, the newest first; calls that come meanwhile may shift one in twice."""
        seen: set[str] = set()
        for start in itertools.count(0, _PAGE):
            page = cast("list[bytes]", self.redis.zrevrangebyscore(keys.PENDING, "+inf", since, start=start, num=_PAGE))
            for member in page:
                if (call_id := member.decode(errors="replace")) not in seen:
                    seen.add(call_id)
                    yield call_id
            if len(page) < _PAGE:
                return

    def details(self, call_id: str) -> CallDetails | None:
        """Return what is known of a call, ``None``: there is no such record."""
        record = next(iter(self._records([call_id])), None)
        if record is None:
            return None
        rest = self._rest(call_id)
        header = _header(rest.message)
        envelope = _envelope(rest.result)
        return CallDetails(
            **dict(record),
            waits_for=rest.waits_for,
            choice=Choice.model_validate_json(rest.why) if rest.why else None,
            options=header.options if header else None,
            hints=header.hints if header else None,
            failure=envelope.failure if envelope else None,
            value_bytes=envelope.value_bytes if envelope and envelope.failure is None else None,
            report=_report(envelope) if envelope else None,
            withheld=rest.withheld,
        )

    def _rest(self, call_id: str) -> _Rest:
        """Return what there is of a call besides the fields of every record."""
        with self.redis.pipeline(transaction=False) as pipe:
            pipe.hmget(keys.call(call_id), ["why", "group", "state"])
            pipe.get(keys.result(call_id))
            pipe.hmget(keys.message(call_id), ["submitted", "again"])
            record, result, sent = pipe.execute(raise_on_error=False)
        for reply in (record, result, sent):
            if isinstance(reply, Exception) and (reply is record or not isinstance(reply, NoPermissionError)):
                raise reply
        why, group, state = record
        withheld = isinstance(result, NoPermissionError) or isinstance(sent, NoPermissionError)
        if withheld:
            result, sent = None, (None, None)
        message, again = sent
        waits_for = again if state == CallState.QUEUED.value.encode() else None
        if group is not None:
            waits_for = cast("bytes | None", self.redis.hget(keys.WAITING_GROUPS, group)) or waits_for
        return _Rest(result, message, why, (waits_for or b"").decode(), withheld)

    def _pages(self, ids: Iterator[str]) -> Iterator[list[CallRecord]]:
        while page := list(dict.fromkeys(itertools.islice(ids, _PAGE))):
            yield self._records(page)

    def _records(self, call_ids: Sequence[str]) -> list[CallRecord]:
        """Return the records of those calls that have one of ours."""
        with self.redis.pipeline(transaction=False) as pipe:
            for call_id in call_ids:
                pipe.hmget(keys.call(call_id), _FIELDS)
            replies = pipe.execute(raise_on_error=False)
        for reply in replies:
            if isinstance(reply, Exception) and not isinstance(reply, ResponseError):
                raise reply
        found = []
        for call_id, reply in zip(call_ids, replies, strict=True):
            with suppress(ValueError, TypeError):  # whoever can write to Redis can put anything there
                found.append(_record(call_id, reply))
        return found


def _record(call_id: str, reply: Sequence[bytes | None]) -> CallRecord:
    text = {name: value.decode() for name, value in zip(_FIELDS, reply, strict=True) if value}
    return CallRecord(
        id=call_id,
        state=CallState(text.get("state", "")),
        function=text.get("name", ""),
        client=text.get("client", ""),
        worker=text.get("worker"),
        session=text.get("session"),
        attempt=int(text.get("attempt", 0)),
        begun=int(text.get("begun", 0)),
        submitted_at=float(text.get("submitted_at", 0)),
        placed_at=_time(text, "placed_at"),
        started_at=_time(text, "started_at"),
        ended_at=_time(text, "ended_at"),
    )


def _time(text: dict[str, str], name: str) -> float | None:
    return float(text[name]) if name in text else None


def _header(message: bytes | None) -> CallHeader | None:
    with suppress(ValueError, LookupError, TypeError):
        return CallHeader.model_validate(json.loads(message or b"")["headers"][task.HEADER])
    return None


def _envelope(result: bytes | None) -> Envelope | None:
    with suppress(ValueError):
        return decode_result(result) if result else None
    return None


def _report(envelope: Envelope) -> Report:
    return envelope.report.model_copy(update={"total_seconds": envelope.ended_at - envelope.submitted_at})
