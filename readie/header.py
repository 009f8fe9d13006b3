"""Makes a call's header: all that routers and workers will know of it, from a function and how it is to run."""

import sys
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any, Final

from .hints import Hints, bounded
from .options import Options
from .project import Travelling, travelling
from .protocol.call import INLINE_LIMIT_BYTES, PROTOCOL_VERSION, CallHeader, ImportHints
from .sessions import Session
from .stream import yields

_PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"


def own_modules(hints: Hints, referred: AbstractSet[str], options: Options) -> Travelling:
    """Return what of the user's project a call needs that was found to import or refer to these names."""
    return travelling({*hints.imports, *referred}, include=options.include_modules, exclude=options.exclude_modules)


def make_header(
    call_id: str,
    function: Callable[..., Any],
    options: Options,
    hints: Hints,
    own: Travelling,
    *,
    payload_bytes: int,
    client: str,
    session: Session | None = None,
) -> CallHeader:
    """Return the header of a call, unsigned.

    Args:
        call_id: the call's.
        function: the user's own.
        options: how it is to run.
        hints: what the scan of the function found.
        own: what of the user's project travels with it.
        payload_bytes: size of the pickled function and arguments.
        client: who it is from.
        session: whose sandbox it runs in.
    """
    use = None if session is None else session.use(options)
    options = options if session is None else session.options_for(options)
    return CallHeader(
        protocol=PROTOCOL_VERSION,
        id=call_id,
        name=str(options.name or getattr(function, "__qualname__", repr(function)))[:256],
        python=_PYTHON,
        hints=ImportHints(
            imports=bounded({*hints.imports, *own.imports}),
            models=hints.models,
            tokenizers=hints.tokenizers,
            datasets=hints.datasets,
        ),
        options=options.for_call(),
        session=use,
        client=client,
        payload_bytes=payload_bytes,
        payload_by_reference=payload_bytes > INLINE_LIMIT_BYTES,
        streams=yields(function),
    )
