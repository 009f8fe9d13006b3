"""Reads a function from its bytecode, where there is no source.

It follows the instructions in order and keeps no model of the stack. That finds every import and dotted read; a literal
is found when no computed argument of its call stands before it.
"""

import dis
from types import CodeType
from typing import Any

from .reading import TYPE_CHECKING_NAME, Call, Chain, Import, Reading, nested

_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_SILENT = frozenset({"PUSH_NULL", "PRECALL", "TO_BOOL", "EXTENDED_ARG"})
"""Instructions that may stand between a read and what is done with it."""


def read_code(code: CodeType) -> Reading:
    """Return what the bytecode of a function says."""
    reading = Reading()
    for each in nested(code):
        _Reader(reading).read(each)
    return reading


class _Reader:
    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._chain: Chain = ()
        self._constants: list[Any] = []
        """What was loaded since the chain, or since the last instruction that ends one."""
        self._imported: tuple[str, int, str | None] | None = None
        """Module, level and name of what will be stored next."""

    def read(self, code: CodeType) -> None:
        resume_offset = 0
        module, level, names = "", 0, None
        for step in dis.get_instructions(code):
            operation, argument = step.opname, step.argval
            if step.offset < resume_offset or operation in _SILENT:
                continue
            if operation in {"LOAD_CONST", "LOAD_SMALL_INT"}:
                self._constants.append(argument)
            elif operation in _ATTRIBUTES and self._chain and not self._constants:
                self._chain += (argument,)
            elif operation == "KW_NAMES":
                self._end_chain(code.co_consts[step.arg or 0])  # Python 3.11 does not resolve this argument
            elif operation == "CALL_KW":
                self._end_chain((self._constants or [()]).pop())
            elif operation == "IMPORT_NAME":
                module, (level, names) = argument, self._constants[-2:]
                self._imported = (module, level, None)
                self._end_chain()
            elif operation == "IMPORT_FROM":
                # Without names it is a step of `import a.b as c`.
                self._imported = (module, level, argument) if names else self._imported
            elif self._chain[-1:] == (TYPE_CHECKING_NAME,) and "JUMP" in operation and "IF_FALSE" in operation:
                resume_offset = argument
                self._end_chain()
            else:
                self._end_chain()
                # Since Python 3.13 one instruction may store or load two names.
                operands = argument if isinstance(argument, tuple) else (argument,)
                if self._imported and operation.startswith("STORE_"):
                    self._reading.imports.append(Import(*self._imported, bound=operands[0]))
                    self._imported = None
                if "LOAD_" in operation and operation not in _ATTRIBUTES and isinstance(operands[-1], str):
                    self._chain = (operands[-1],)
        self._end_chain()

    def _end_chain(self, keyword_names: tuple[str, ...] = ()) -> None:
        if self._chain:
            self._reading.chains.append(self._chain)
            literals = [constant if isinstance(constant, str) else None for constant in self._constants]
            split = max(0, len(literals) - len(keyword_names))
            keywords = {name: text for name, text in zip(keyword_names, literals[split:], strict=False) if text}
            if any(literals):
                self._reading.calls.append(Call(self._chain, tuple(literals[:split]), keywords))
        self._chain = ()
        self._constants.clear()
