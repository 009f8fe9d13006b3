"""What goes with a call's function and arguments: environment variables, the user's own modules, package versions.

Two items of the payload's container, after the two pickles. Router and worker pass them on unread, so that neither an
environment variable nor a line of source shows in a header, a log or Flower. Standard library only: the executor
imports this module.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .payload import Buffer


class ModuleSource(NamedTuple):
    """One module of the user's own project."""

    name: str
    """Full dotted name."""
    file: str
    """Where it lies at the client, for tracebacks."""
    is_package: bool
    wins: bool
    """Whether it is used even where the flavor has a module of this name."""
    source: str


@dataclass(frozen=True)
class Context:
    """See the module."""

    versions: Mapping[str, str] = field(default_factory=dict)
    """Of the client's packages that the pickles refer to."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables to set while the call runs."""
    modules: Sequence[ModuleSource] = ()


def pack_modules(modules: Sequence[ModuleSource]) -> bytes:
    """Return the packed sources, nothing for none; apart from the rest because the same ones go with many calls."""
    return zlib.compress(json.dumps(modules).encode(), 1) if modules else b""


def pack(versions: Mapping[str, str], environment: Mapping[str, str], modules: bytes) -> list[bytes]:
    """Return the two items."""
    return [json.dumps({"versions": dict(versions), "environment": dict(environment)}).encode(), modules]


def unpack(items: Sequence[Buffer]) -> Context:
    """Return what :func:`pack` made.

    Raises:
        ValueError: the items are not of its making.
    """
    if not items:
        return Context()
    try:
        about, packed = items
        content = json.loads(bytes(about))
        sources = json.loads(zlib.decompress(packed)) if len(packed) else []
        modules = tuple(ModuleSource(*source) for source in sources)
        return Context(content["versions"], content["environment"], modules)
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        raise ValueError(f"what goes with a call is not as agreed: {error!r}") from error
