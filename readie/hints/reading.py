"""What a piece of code says about itself; the same from source and from bytecode."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Final, NamedTuple

TYPE_CHECKING_NAME: Final = "TYPE_CHECKING"
Chain = tuple[str, ...]
"""A dotted read that starts at a name: ``np.linalg.norm`` is ``("np", "linalg", "norm")``."""


class Import(NamedTuple):
    """One imported name. ``from ..a import b as c`` is ``Import("a", 2, "b", "c")``."""

    module: str
    level: int
    name: str | None
    """What is taken from the module, ``*`` for all; ``None`` for ``import module``."""
    bound: str
    """The name it is known by afterwards."""


class Call(NamedTuple):
    """A call with string literals among its arguments; ``None`` stands for any other positional argument."""

    callee: Chain
    positional: tuple[str | None, ...]
    keywords: dict[str, str]

    def literal(self, position: int, keyword: str) -> str | None:
        return self.positional[position] if position < len(self.positional) else self.keywords.get(keyword)


@dataclass(slots=True)
class Reading:
    """Imports, dotted reads and calls with literals, of one piece of code and all code nested in it."""

    imports: list[Import] = field(default_factory=list)
    chains: list[Chain] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)


def nested(code: CodeType) -> Iterator[CodeType]:
    """Yield the code and all code nested in it: inner functions, lambdas, classes, comprehensions."""
    yield code
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from nested(constant)
