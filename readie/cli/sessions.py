"""``readie sessions`` and ``readie sessions close``."""

# ruff: noqa: PLC0415 - see the package's docstring

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from . import completion
from .cluster import cluster_redis
from .display import console, plain, print_json, say, seconds, table
from .options import AsJson

if TYPE_CHECKING:
    from readie.protocol.session import SessionRecord

app = typer.Typer(name="sessions", help="List the open sessions, or close one.", invoke_without_command=True)


@app.callback()
def sessions(
    context: typer.Context,
    as_json: AsJson = False,
) -> None:
    """List the open sessions, in the order of their first calls, or close one.

    Exit status: 0 they are listed, be it none.
    """
    if context.invoked_subcommand is not None:
        return
    with cluster_redis("sessions") as redis:
        from readie.ledger.sessions import SessionLedger

        ledger = SessionLedger(redis)
        records = ledger.sessions()
        now = ledger.now()
    if as_json:
        print_json([record.model_dump(mode="json", exclude={"why"}) for record in records])
    elif records:
        _show(records, now)
    else:
        say("No open sessions.")


@app.command()
def close(
    session_id: Annotated[
        str,
        typer.Argument(
            metavar="SESSION", help="Its id, as `readie sessions` shows it.", autocompletion=completion.sessions
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Close a session: its sandbox goes, and calls that run or wait in it end.

    Exit status: 0 it is closed; 1 no such session is open.
    """
    from readie.errors import SessionExpiredError

    with cluster_redis("sessions") as redis:
        from readie.ledger.sessions import SessionLedger
        from readie.protocol.session import SessionState

        closed = SessionLedger(redis).end_session(
            session_id, SessionState.CLOSED, "was closed by `readie sessions close`"
        )
    if not closed:
        raise SessionExpiredError(f"no session {session_id} is open; `readie sessions` lists those that are")
    if as_json:
        print_json({"session": session_id, "closed": True})
    else:
        say(f"Closed session {session_id}.")


def _show(records: "Sequence[SessionRecord]", now: float) -> None:
    made = table(
        "Session", "State", ">Idle", ">Ends after", ">Wait", "Sandbox", whole=[record.id for record in records]
    )
    for record in records:
        idle = seconds(max(0.0, now - record.last_used_at)) if record.state == "idle" else ""
        sandbox = f"{record.checkpoint_id or 'cold'} on {record.worker}" if record.sandbox else ""
        ends_after = f"{record.idle_ttl_seconds:g} s"
        made.add_row(plain(record.id), record.state.value, idle, ends_after, str(record.waiting or ""), plain(sandbox))
    console().print(made)
