"""``readie run``."""

# ruff: noqa: PLC0415 - see the package's docstring

import json
from typing import Annotated, Any

import typer

from .display import say
from .options import Target


def run(
    target: Target,
    arguments: Annotated[
        list[str] | None,
        typer.Option(
            "--arg",
            metavar="[NAME=]VALUE",
            help="An argument, by its place or its name; JSON such as 3, true or '[1, 2]', else text. May be repeated.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a line for each value of a generator.")] = False,
) -> None:
    """Run a function remotely and print its value, or each value of a generator as it comes.

    The file is executed, as an import would do it. What the function prints comes on standard error.

    Exit status: 0 it returned; 1 it raised or could not run; 130 it was interrupted, and cancelled.
    """
    from readie.call import Call
    from readie.cli.target import load_function
    from readie.errors import ClusterUnavailableError, ReadieError, RemoteError
    from readie.stream import yields

    function = load_function(target).options(stream_logs=True)
    positional, named = _parse(arguments or [])
    call: Call[Any] = function.spawn(*positional, **named)
    try:
        if yields(function.__wrapped__):
            for value in call.stream():
                _print(value, as_json=as_json)
        else:
            _print(call.result(), as_json=as_json)
    except ReadieError as error:
        if isinstance(error, ClusterUnavailableError) and not isinstance(error, RemoteError):
            raise
        say(f"readie: {type(error).__name__}: {_with_traceback(error)}", stderr=True)
        raise typer.Exit(1) from None
    except BaseException:
        call.cancel()
        raise


def _parse(arguments: list[str]) -> tuple[list[Any], dict[str, Any]]:
    positional, named = [], {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if equals and name.isidentifier():
            named[name] = _value(value)
        else:
            positional.append(_value(argument))
    return positional, named


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _print(value: object, *, as_json: bool) -> None:
    if as_json:
        try:
            typer.echo(json.dumps(value))
        except (TypeError, ValueError):
            typer.echo(json.dumps(repr(value)))
    elif value is not None:
        typer.echo(value if isinstance(value, str) else repr(value))


def _with_traceback(error: Exception) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", ())])
