"""Hints: which modules a function will need, found on the client without running it.

``reading`` is what one piece of code says about itself. It comes from ``source``, or from ``bytecode`` where there is
no source (the REPL, ``exec``). ``walk`` goes from the function to the helpers and objects it reaches and turns readings
into names; ``objects`` looks at those objects without running their code; ``literals`` knows what names a model.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from .walk import Walk

_MAX_NAMES: Final = 256


@dataclass(frozen=True, slots=True)
class Hints:
    """What a function will need.

    ``imports`` are full dotted names as they are used, sorted, without the standard library: ``("numpy",
    "sklearn.svm.LinearSVC")``. The others are given as literals: ``AutoModel.from_pretrained("bert-base-uncased")``.
    """

    imports: tuple[str, ...]
    models: tuple[str, ...] = ()
    tokenizers: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()


def scan(function: Callable[..., object]) -> Hints:
    """Return the hints of a function, or of anything else that can be called. Never raises: it yields what it found.

    Reached are: referenced globals, closures, defaults, annotations, attributes and wrapped functions; helpers
    (functions and classes of the user's own code: neither of the standard library nor below a ``site-packages``
    folder); the top level of own modules that are imported by now. An own module that is first imported when the call
    runs is named but not looked into, because finding it could run code. Both branches of ``try``/``except
    ImportError`` count; what only a type checker sees does not. At most 256 names of each kind are kept, those with
    fewer dots first.
    """
    walk = Walk()
    walk.run(function)
    return Hints(bounded(walk.imports), *(bounded(walk.named[kind]) for kind in ("models", "tokenizers", "datasets")))


def bounded(names: Iterable[str]) -> tuple[str, ...]:
    """Return as many names as a call may carry, sorted; those with fewer dots are kept first."""
    return tuple(sorted(sorted(names, key=lambda name: (name.count("."), name))[:_MAX_NAMES]))
