"""``readie explain``."""

# ruff: noqa: PLC0415 - see the package's docstring

import typer

from .options import AsJson, Target


def explain(
    target: Target,
    as_json: AsJson = False,
) -> None:
    """Show where a call of a function would go and why: hints, predicted seconds of every start, the choice.

    The file is executed, as an import would do it.

    Exit status: 0 the call would be placed or wait; 1 it would be refused.
    """
    from readie.cli.target import load_function

    answer = load_function(target).explain()
    typer.echo(answer.model_dump_json(indent=2) if as_json else str(answer))
    raise typer.Exit(0 if answer.failure is None else 1)
