"""``readie explain``."""

# ruff: noqa: PLC0415 - see the package's docstring

from typing import Annotated

import typer


def explain(
    target: Annotated[str, typer.Argument(metavar="FILE:FUNCTION", help="A function in a Python file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show where a call of a function would go and why: hints, predicted seconds of every start, the choice.

    The file is executed, as an import would do it. Exit status: 0 the call would be placed or wait; 1 it would be
    refused, or no router answered.
    """
    from readie.cli.target import load_function

    answer = load_function(target).explain()
    typer.echo(answer.model_dump_json(indent=2) if as_json else str(answer))
    raise typer.Exit(0 if answer.failure is None else 1)
