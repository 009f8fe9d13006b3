"""Writes docs/cli.md from the commands themselves; `make docs` runs it."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel
from typer.main import get_command

from readie.cli.app import app
from readie.protocol.dead_letter import DeadLetter
from readie.protocol.explain import ExplainAnswer
from readie.protocol.record import CallDetails, CallRecord
from readie.protocol.session import SessionRecord
from readie.stack.activity import Activity
from readie.stack.checkpoints import CheckpointOverview, GenerationOverview
from readie.stack.overview import Overview

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
GENERATED = "<!-- Written by scripts/cli_reference.py from the code: change that, then run `make docs`. -->\n"
_ELSEWHERE = "<!-- elsewhere: {} -->"


class Example(NamedTuple):
    """How a command is used, and what --json prints."""

    code: str
    json: str = ""
    model: type[BaseModel] | None = None
    elsewhere: str = ""
    """Why the documentation's test can't run it."""


EXAMPLES = {
    "up": Example(
        "readie up -d --workers 2 --flower     # returns when all runs",
        "an object when all runs: `home`, `logs`, `redis_url`, `flower_url` (or null), `parts` (names), `ran_already`",
        elsewhere="tests/stack starts stacks of its own",
    ),
    "down": Example(
        "readie down",
        "an object: `home`, `ran`, `stopped` (names), `without_supervisor`",
        elsewhere="tests/stack stops stacks of its own",
    ),
    "status": Example("readie status", "an object", Overview),
    "top": Example("readie top --once", "an object", Activity),
    "doctor": Example(
        "readie doctor", "an object: `state` (ok, warning, problem), `checks` (each `name`, `state`, `found`, `fix`)"
    ),
    "calls": Example(
        "readie calls --state failed --since 1h\nreadie calls CALL",
        "a list, of which each element is an object",
        CallRecord,
    ),
    "logs": Example(
        "readie logs CALL", "an object in each line: `line`, `offset` (bytes, to go on from with --offset)"
    ),
    "cancel": Example("readie cancel CALL", "an object: for each id whether the call is cancelled"),
    "sessions": Example("readie sessions", "a list, of which each element is an object", SessionRecord),
    "sessions close": Example(
        "readie sessions close SESSION",
        "an object: `session`, `closed`",
        elsewhere="it takes a session that is open",
    ),
    "checkpoints": Example(
        "readie checkpoints\nreadie checkpoints checkpoint_1",
        "a list, of which each element is an object",
        GenerationOverview,
    ),
    "generation list": Example(
        "readie generation list",
        "a list of objects: `generation`, `path`, `current`, `in_use`, `disk_bytes`, with `created_at`, "
        "`runsc_version`, `python`, `checkpoints`, or `error`",
    ),
    "generation show": Example(
        "readie generation show current",
        "an object: `path`, `in_use`, `manifest`, `cost`, `modules`, `checkpoints`, `dropped`, `plan`",
    ),
    "generation verify": Example("readie generation verify", "an object: `generation`, `problems`"),
    "generation use": Example("readie generation use ID", "an object: `generation`, `path`"),
    "generation prune": Example(
        "readie generation prune --dry-run", "an object: `generations`, `filesystems`, `in_use`, `freed_bytes`"
    ),
    "generation diff": Example(
        "readie generation diff ID current",
        "an object: `manifest`, `cost`, `checkpoints`, `modules`, each with what differs",
    ),
    "explain": Example("readie explain examples/quickstart.py:digit_accuracy", "an object", ExplainAnswer),
    "acl": Example(
        "readie acl --client alice --client bob --write users.acl --passwords passwords.json",
        "an object: `aclfile`, `passwords` (files), `users` (names)",
        elsewhere="tests/doors writes files of its own",
    ),
    "run": Example(
        "readie run examples/quickstart.py:digit_accuracy --arg trees=10",
        "the value, or for a generator each value in a line of its own; what JSON does not know is its `repr` as text",
    ),
    "dead-letters": Example("readie dead-letters", "a list, of which each element is an object", DeadLetter),
}
"""What each command's section shows. A command without an entry fails the build."""


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command that does something, by the words that call it."""
    group: Any = get_command(app)
    for name, command in group.commands.items():
        below = getattr(command, "commands", {})
        if not below or command.invoke_without_command:
            yield name, command
        yield from ((f"{name} {word}", one) for word, one in below.items())


_INTRODUCTION = """\
`readie --help` lists the commands, `readie COMMAND --help` says what one takes. They look at the Redis of
`READIE_REDIS_URL`, else at the stack that runs in `READIE_HOME` ([settings](settings.md)).

## What they have in common

| exit status | means |
| --- | --- |
| 0 | it is done, and what it found is well |
| 1 | it failed, or what it found is bad; standard error or the output says why |
| 2 | a wrong option, argument or setting: nothing was done |
| 3 | `status` and `top`: nothing runs; `doctor`: it works, but not as well as it could |
| 4 | Redis can't be reached, or no router answers |
| 130 | it was interrupted |

**`--json`** prints JSON on standard output and nothing else there; messages and progress go to standard error. Where a
command fails before it has something to print, standard output is empty. The keys stay: later releases may add some,
and neither rename nor remove any. Times are seconds since the epoch, by Redis' clock.

**Width.** Tables fit the terminal (`COLUMNS`, or 80, where there is none); what is too long for its column goes on in
the next line, and ids of calls are whole from 80 columns on. What others have chosen, such as the names of functions,
is shown with control characters written out.

**Completion** of commands, options, and the ids of calls, sessions, workers, checkpoints and generations works in bash,
zsh and fish. Ids come from Redis; where it does not answer within half a second, none are offered.

<!-- elsewhere: it changes the start-up files of the shell -->
```sh
readie --install-completion                   # for the shell that this is typed in
_READIE_COMPLETE=source_bash readie           # prints the script for bash; source_zsh, source_fish
```

""".splitlines()


def page() -> str:
    """Return docs/cli.md."""
    lines = [
        "# Commands",
        "",
        GENERATED,
        *_INTRODUCTION,
    ]
    found = dict(commands())
    if found.keys() != EXAMPLES.keys():
        raise SystemExit(f"EXAMPLES lacks or has too many: {', '.join(sorted(found.keys() ^ EXAMPLES.keys()))}")
    for name, command in found.items():
        lines += [*_command(name, command, EXAMPLES[name]), ""]
    return "\n".join(lines).rstrip() + "\n"


def _command(name: str, command: Any, example: Example) -> Iterator[str]:
    yield f"## {name}"
    yield ""
    paragraphs = inspect.cleandoc(command.callback.__doc__).split("\n\n")
    for paragraph in paragraphs:
        yield _wrapped(paragraph)
        yield ""
    if example.elsewhere:
        yield _ELSEWHERE.format(example.elsewhere)
    yield "```sh"
    yield example.code
    yield "```"
    yield ""
    parameters = [each for each in command.params if each.name not in {"help", "as_json"}]
    if parameters:
        yield "| takes | meaning |"
        yield "| --- | --- |"
        for parameter in parameters:
            yield f"| {_names(parameter)} | {_meaning(parameter)} |"
        yield ""
    yield f"`--json` prints {example.json}" + (f": {_keys(example.model)}." if example.model else ".")
    if name == "calls":
        yield f"With an id it is one object, which has besides: {_keys(CallDetails, CallRecord)}."
    if name == "checkpoints":
        yield f"Each element of `checkpoints` has {_keys(CheckpointOverview)}."


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar}`"
    names = ", ".join(f"`{name}`" for name in parameter.opts)
    return names if parameter.is_flag else f"{names} {_takes(parameter)}"


def _takes(parameter: Any) -> str:
    annotation = parameter.type_descriptor.annotation
    return f"`{parameter.metavar or ('N' if annotation in {int, float} else 'TEXT')}`"


def _meaning(parameter: Any) -> str:
    text = parameter.help
    default = parameter.default
    is_flag = getattr(parameter, "is_flag", False)
    if isinstance(parameter.show_default, str):
        return f"{text} Default: {parameter.show_default}."
    if parameter.show_default and default is not None and not is_flag:
        return f"{text} Default: {default}."
    return str(text)


def _keys(model: type[BaseModel], without: type[BaseModel] | None = None) -> str:
    left_out = without.model_fields.keys() if without else ()
    hidden = {"why"} if model is SessionRecord else set()
    return ", ".join(f"`{name}`" for name in model.model_fields if name not in left_out and name not in hidden)


def _wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(page())
