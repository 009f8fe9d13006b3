"""``readie calls``."""

# ruff: noqa: PLC0415 - see the package's docstring

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from . import completion
from .cluster import cluster_redis
from .display import console, facts, plain, print_json, say, seconds, table, when
from .options import AsJson, Worker, duration_seconds

if TYPE_CHECKING:
    from readie.ledger.observing import ObservingLedger
    from readie.protocol.record import CallDetails, CallRecord

_WIDE: Final = 110
"""Columns from which on there is room for more."""


State = StrEnum("State", ["QUEUED", "PLACED", "RUNNING", "DONE", "FAILED", "CANCELLED", "EXPIRED"])
"""The states of a call; importing the protocol's own would keep the shell's completion waiting."""


def calls(
    call_id: Annotated[
        str | None,
        typer.Argument(
            metavar="CALL",
            help="Show this one in full: its id, or the beginning of it.",
            autocompletion=completion.calls,
            show_default=False,
        ),
    ] = None,
    *,
    states: Annotated[
        list[State] | None,
        typer.Option("--state", metavar="STATE", help=f"Only {', '.join(State)}; may be repeated.", show_default=False),
    ] = None,
    function: Annotated[
        str, typer.Option(help="Only of this function; * and ? stand for any characters.", show_default=False)
    ] = "",
    worker: Worker = "",
    client: Annotated[str | None, typer.Option(help="Only of this client.", show_default=False)] = None,
    since: Annotated[
        float | None,
        typer.Option(
            metavar="AGE",
            help="Only those submitted in the last 90s, 10m, 2h, 1d, ...",
            parser=duration_seconds,
            show_default=False,
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Most calls to list.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List calls, the newest first, or show one in full.

    A call that has ended is known as long as its result is kept, an hour by default.

    Exit status: 0 they are listed, be it none; 1 there is no such call.
    """
    with cluster_redis("calls") as redis:
        from readie.ledger.observing import ObservingLedger, Wanted
        from readie.protocol.envelope import CallState

        ledger = ObservingLedger(redis)
        if call_id is not None:
            details = _find(ledger, call_id)
            now = ledger.now()
        else:
            now = ledger.now()
            wanted = Wanted(
                states=frozenset(map(CallState, states or ())),
                function=function,
                worker=worker,
                client=client,
                since=0.0 if since is None else now - since,
            )
            with console(stderr=True).status("Looking at the calls' records"):
                found = ledger.calls(wanted, limit)
    if call_id is not None:
        if as_json:
            print_json(details.model_dump(mode="json"))
        else:
            console().print(facts(_facts(details, now)))
    elif as_json:
        print_json([record.model_dump(mode="json") for record in found])
    elif found:
        _list(found, now)
        if len(found) == limit:
            say(f"The newest {limit}; --limit shows more.", stderr=True)
    else:
        say("No such calls.")


def _find(ledger: "ObservingLedger", call_id: str) -> "CallDetails":
    """Return the one call of that id, or whose id begins so.

    Raises:
        ResultExpiredError: there is none.
        InvalidRequestError: there are several.
    """
    import itertools

    from readie.errors import InvalidRequestError, ResultExpiredError

    details = ledger.details(call_id)
    if details is None and call_id:
        found = sorted(set(itertools.islice(ledger.ids(call_id), 4)))
        if len(found) > 1:
            raise InvalidRequestError(f"several calls begin with {call_id!r}: {', '.join(found[:3])}; give more of it")
        details = ledger.details(found[0]) if found else None
    if details is None:
        raise ResultExpiredError(f"no call is known whose id is or begins with {call_id!r}; `readie calls` lists them")
    return details


def _list(found: "Sequence[CallRecord]", now: float) -> None:
    out = console()
    wide = out.width >= _WIDE
    titles = ["Call", "State", ">Age", ">Ran", "Function", *(["Worker", "Client"] if wide else [])]
    made = table(*titles, whole=[record.id for record in found])
    for record in found:
        more = [plain(record.worker or ""), plain(record.client)] if wide else []
        made.add_row(
            plain(record.id),
            record.state.value,
            seconds(now - record.submitted_at),
            seconds(_ran(record, now)),
            plain(record.function),
            *more,
        )
    out.print(made)


def _ran(record: "CallRecord", now: float) -> float | None:
    if record.started_at is None or record.state == "queued":
        return None
    return (record.ended_at or now) - record.started_at


def _facts(call: "CallDetails", now: float) -> "Iterator[tuple[str, str]]":
    yield "Call", call.id
    yield "Function", call.function or "not told"
    yield "State", f"{call.state.value} ({call.waits_for})" if call.waits_for else call.state.value
    yield from ((name, text) for name, text in (("Client", call.client), ("Session", call.session or "")) if text)
    for name, at in (
        ("Submitted", call.submitted_at),
        ("Placed", call.placed_at),
        ("Begun", call.started_at),
        ("Ended", call.ended_at),
    ):
        if at is not None:
            yield name, f"{when(at)}, {seconds(max(0.0, now - at))} ago"
    yield from _placement(call)
    yield from _needs(call)
    yield from _outcome(call)
    if call.withheld:
        yield "Not shown", "what it asked for and how it ended, which this user of Redis may not read"


def _placement(call: "CallDetails") -> "Iterator[tuple[str, str]]":
    if call.worker is not None:
        yield "Worker", call.worker
    if call.attempt:
        yield "Attempt", f"{call.attempt}, begun {_times(call.begun)}"
    report, choice = call.report, call.choice
    if choice is not None:
        yield "Start", f"{choice.checkpoint_id or 'cold'}, as its router chose"
        yield "Why", choice.reason
        if choice.predicted_seconds is not None:
            yield "Predicted", f"{seconds(choice.predicted_seconds)} until its first line"
    elif report is not None:
        if report.start is not None:
            yield "Start", f"{report.start} from {report.checkpoint_id}" if report.checkpoint_id else report.start
        yield from (
            (name, text)
            for name, text in (
                ("Why", report.reason),
                ("Fallback", report.fallback),
                ("Restarted", report.restarted),
                ("Packages", report.packages),
            )
            if text
        )
        if report.predicted_seconds is not None and "execute" in report.phases:
            yield "Predicted", f"{seconds(report.predicted_seconds)}, and it took {seconds(report.start_seconds)}"


def _needs(call: "CallDetails") -> "Iterator[tuple[str, str]]":
    if call.hints is not None and call.hints.imports:
        yield "Imports", ", ".join(call.hints.imports)
    if call.options is not None:
        given = call.options.model_dump(mode="json", exclude_defaults=True)
        if given:
            yield "Options", ", ".join(f"{name}={value}" for name, value in given.items())


def _outcome(call: "CallDetails") -> "Iterator[tuple[str, str]]":
    report = call.report
    if report is not None:
        if report.phases:
            yield "Phases", ", ".join(f"{name} {seconds(lasted)}" for name, lasted in report.phases.items())
        yield "Total", seconds(report.total_seconds)
        if report.output_bytes:
            yield "Printed", f"{report.output_bytes:,} bytes; `readie logs {call.id}` shows it"
        if report.yielded is not None:
            yield "Yielded", f"{report.yielded} values"
    if call.failure is not None:
        kind = f"{call.failure.type}: " if call.failure.type else ""
        yield "Failure", f"{call.failure.code.value}: {kind}{call.failure.message}"
        if call.failure.traceback:
            yield "", call.failure.traceback.rstrip()
    elif call.value_bytes is not None and call.state == "done":
        yield "Value", f"{call.value_bytes:,} bytes, pickled"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
