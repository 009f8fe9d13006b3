"""Exceptions as they travel from a sandbox to a client. Standard library only: both sides import this.

Python pickles an exception as its class called with its ``args``, which fails for every class whose ``__init__`` takes
something else. Here its state travels, and its ``__init__`` is not called again.
"""

from types import FunctionType
from typing import Any


def reduce_exception(error: BaseException, *, with_chain: bool) -> tuple[Any, ...] | None:
    """Return what rebuilds an exception, for a pickler's ``reducer_override``; ``None``: it knows better itself.

    Args:
        error: the exception.
        with_chain: whether ``__cause__`` and ``__context__`` go along.
    """
    own = type(error)
    if own.__reduce__ is not BaseException.__reduce__ or own.__reduce_ex__ is not object.__reduce_ex__:
        return None
    chain = (error.__cause__, error.__context__, error.__suppress_context__) if with_chain else (None, None, False)
    return rebuild_exception, (own, error.args, dict(error.__dict__), *chain)


def rebuild_exception(  # noqa: PLR0917 - the pickled form has no names
    own: type[BaseException],
    arguments: tuple[Any, ...],
    state: dict[str, Any],
    cause: BaseException | None,
    context: BaseException | None,
    suppress_context: bool,
) -> BaseException:
    """Make an exception of class ``own`` from its state."""
    # The nearest class written in C keeps state of its own beside __dict__, which its __init__ sets.
    classes: tuple[Any, ...] = own.__mro__
    native = next(base for base in classes if not isinstance(base.__init__, FunctionType))
    error: BaseException = native.__new__(own, *arguments)
    native.__init__(error, *arguments)
    error.__dict__.update(state)
    # Past its own __setattr__, which may refuse, as that of a frozen dataclass does.
    for name, value in (("__cause__", cause), ("__context__", context), ("__suppress_context__", suppress_context)):
        BaseException.__setattr__(error, name, value)
    return error
