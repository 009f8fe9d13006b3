"""``readie sessions`` and ``readie sessions close``."""

# ruff: noqa: PLC0415 - see the package's docstring

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from readie.protocol.session import SessionRecord

app = typer.Typer(name="sessions", help="List the open sessions, or close one.", invoke_without_command=True)


@app.callback()
def sessions(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the open sessions, or close one."""
    if context.invoked_subcommand is not None:
        return
    import json

    from readie.connection import connect, reaching_redis
    from readie.ledger.sessions import SessionLedger
    from readie.stack.settings import load_settings

    url = load_settings().redis_url
    with connect(url, name="readie-sessions") as redis, reaching_redis(url):
        ledger = SessionLedger(redis)
        records = ledger.sessions()
        now = ledger.now()
    if as_json:
        typer.echo(json.dumps([record.model_dump(mode="json", exclude={"why"}) for record in records], indent=2))
    elif records:
        _show(records, now)
    else:
        typer.echo("No open sessions.")


@app.command()
def close(session_id: Annotated[str, typer.Argument(metavar="ID", help="As `readie sessions` shows it.")]) -> None:
    """Close a session: its sandbox goes, and calls that run or wait in it end."""
    from readie.connection import connect, reaching_redis
    from readie.errors import SessionExpiredError
    from readie.ledger.sessions import SessionLedger
    from readie.protocol.session import SessionState
    from readie.stack.settings import load_settings

    url = load_settings().redis_url
    with connect(url, name="readie-sessions") as redis, reaching_redis(url):
        closed = SessionLedger(redis).end_session(
            session_id, SessionState.CLOSED, "was closed by `readie sessions close`"
        )
    if not closed:
        raise SessionExpiredError(f"no session {session_id} is open; `readie sessions` lists those that are")
    typer.echo(f"Closed session {session_id}.")


def _show(records: "Sequence[SessionRecord]", now: float) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for column in ("session", "state", "worker", "start", "idle", "ends after", "waiting"):
        table.add_column(column, justify="right" if column in {"idle", "ends after", "waiting"} else "left")
    for record in records:
        idle = f"{now - record.last_used_at:.0f} s" if record.state == "idle" else ""
        start = (record.checkpoint_id or "cold") if record.sandbox else ""
        ttl = f"{record.idle_ttl_seconds:g} s"
        table.add_row(record.id, record.state.value, record.worker, start, idle, ttl, str(record.waiting or ""))
    Console(highlight=False).print(table)
