"""``readie acl``."""

# ruff: noqa: PLC0415 - see the package's docstring

from pathlib import Path
from typing import Annotated

import typer

from .display import print_json, say
from .options import AsJson


def acl(
    write: Annotated[Path, typer.Option(metavar="FILE", help="Redis' aclfile; it has digests of the passwords.")],
    passwords: Annotated[
        Path, typer.Option(metavar="FILE", help="Passwords by user, as JSON; those that it lacks are made.")
    ],
    clients: Annotated[
        list[str] | None, typer.Option("--client", metavar="NAME", help="A user that submits calls; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the Redis users of a cluster, each with the rights that it needs and no others.

    There is one user for each client, and router, worker, flower, observer (reads, but no payloads or results) and
    admin. Redis takes the file with `aclfile FILE` in its configuration, or with `--aclfile FILE`.

    Exit status: 0 both files are written, 2 a wrong name, or a file of passwords that is none.
    """
    import json
    import re
    import secrets

    from readie.acl import ROLES, acl_file
    from readie.errors import ConfigurationError
    from readie.protocol.owner import OWNER_PATTERN

    names = clients or ["client"]
    for name in names:
        if not re.fullmatch(OWNER_PATTERN, name) or name in {*ROLES, "default"}:
            raise ConfigurationError(
                f"--client {name!r}: give up to 31 letters, digits, '_' and '-', other than {', '.join(ROLES)}, default"
            )
    known = _read(passwords)
    for user in (*ROLES, *names):
        known.setdefault(user, secrets.token_urlsafe(24))
    _write(passwords, json.dumps(known, indent=2) + "\n")
    _write(write, acl_file(names, known))
    if as_json:
        print_json({"aclfile": str(write), "passwords": str(passwords), "users": [*ROLES, *names]})
    else:
        say(f"Wrote {write}, and the passwords to {passwords}: keep these where only you can read them.")


def _read(file: Path) -> dict[str, str]:
    import json

    from readie.errors import ConfigurationError

    if not file.exists():
        return {}
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"--passwords {file}: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(password, str) and password for password in found.values()):
        raise ConfigurationError(f"--passwords {file}: it must be a JSON object of passwords by user")
    return found


def _write(file: Path, text: str) -> None:
    """Write a file that nobody else can read, whole or not at all."""
    draft = file.with_name(f".{file.name}.draft")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_text(text)
    draft.replace(file)
