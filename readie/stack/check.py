"""One thing that was looked at, and whether it is as it should be."""

from typing import Literal, NamedTuple

CheckState = Literal["ok", "warning", "problem"]


class Check(NamedTuple):
    """What was looked at, what was found, and what to do about it; nothing to do where it is fine."""

    name: str
    state: CheckState
    found: str
    fix: str = ""
