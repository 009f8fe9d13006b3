"""Whose a call or a session is: its id begins with the Redis user who made it, so that Redis' own rights part them.

Redis lets a user touch keys by their names (``readie acl``). What an id says is true where users have rights, for
nobody else can write the record of that name.
"""

import re
from typing import Final

OWNER_PATTERN: Final = r"[A-Za-z0-9_-]{1,31}"
"""What a Redis user must be called whose calls are to be apart from those of others."""
ID_PATTERN: Final = rf"({OWNER_PATTERN}\.)?[A-Za-z0-9_-]{{1,64}}"
_NOBODY: Final = "default"
"""Redis' name for who says none."""


def owner_of_user(user: str | None) -> str:
    """Return the owner of what a Redis user makes, empty for one who owns nothing."""
    return user if user and user != _NOBODY and re.fullmatch(OWNER_PATTERN, user) else ""


def owned(owner: str, name: str) -> str:
    """Return an id of an owner."""
    return f"{owner}.{name}" if owner else name


def owner_of(owned_id: str) -> str:
    """Return whose an id is, empty when it is nobody's."""
    owner, dot, _ = owned_id.partition(".")
    return owner if dot else ""
