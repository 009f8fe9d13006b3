"""Reads a function or a module from its source."""

import ast
import inspect
import linecache
from functools import lru_cache
from types import CodeType
from typing import Any

from .reading import TYPE_CHECKING_NAME, Call, Chain, Import, Reading

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def read_function(code: CodeType, module_globals: dict[str, Any]) -> Reading | None:
    """Return what the source of a function says, or ``None`` when there is none or it does not hold the function.

    Lambdas have none: theirs is often half a statement, and several may share a line. What decorators and defaults say
    is in it too; the caller knows which names the function's own code uses.
    """
    if code.co_name == "<lambda>":
        return None
    try:
        linecache.checkcache(code.co_filename)
        lines = linecache.getlines(code.co_filename, module_globals)[code.co_firstlineno - 1 :]
        # inspect.getsource would do, but it looks at every loaded module first, which runs lazy modules' code.
        text = "".join(inspect.getblock(lines))
        # An indented block is made valid by a line above it: dedenting would break strings that span lines.
        tree = ast.parse("if 1:\n" + text if text[:1].isspace() else text)
        function = next(node for node in ast.walk(tree) if isinstance(node, _Function) and node.name == code.co_name)
        reader = _Reader(into_functions=True)
        reader.visit(function)
    except Exception:  # source that can't be read, or is of something else by now, is as good as none
        return None
    return reader.reading


def read_module(filename: str, module_globals: dict[str, Any]) -> Reading:
    """Return what a module does when it is imported: its top level and its classes, not its functions."""
    linecache.checkcache(filename)
    return _read_module("".join(linecache.getlines(filename, module_globals)))


@lru_cache(maxsize=64)
def _read_module(text: str) -> Reading:
    reader = _Reader(into_functions=False)
    reader.visit(ast.parse(text))
    return reader.reading


def _chain(node: ast.expr) -> Chain:
    """Return the dotted read that an expression is, empty if it is something else."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else ()


def _literal(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


class _Reader(ast.NodeVisitor):
    def __init__(self, *, into_functions: bool) -> None:
        self.reading = Reading()
        self._into_functions = into_functions

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            bound = alias.asname or alias.name.partition(".")[0]
            self.reading.imports.append(Import(alias.name, 0, None, bound))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self.reading.imports.append(Import(node.module or "", node.level, alias.name, alias.asname or alias.name))

    def visit_If(self, node: ast.If) -> None:
        test, otherwise = node.test, node.orelse
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, otherwise = test.operand, node.body
        if _chain(test)[-1:] != (TYPE_CHECKING_NAME,):
            self.generic_visit(node)
            return
        for statement in otherwise:
            self.visit(statement)

    def visit_Name(self, node: ast.Name) -> None:
        self.reading.chains.append((node.id,))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if chain := _chain(node):
            self.reading.chains.append(chain)
        else:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        positional = tuple(map(_literal, node.args))
        keywords = {word.arg: text for word in node.keywords if word.arg and (text := _literal(word.value))}
        if (callee := _chain(node.func)) and (keywords or any(positional)):
            self.reading.calls.append(Call(callee, positional, keywords))
        self.generic_visit(node)

    def _visit_function(self, node: ast.AST) -> None:
        if self._into_functions:
            self.generic_visit(node)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_function  # noqa: N815 (names ast asks for)
