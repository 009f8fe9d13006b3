"""Runs a page's blocks of Python like a notebook's cells: statement by statement, ``await`` allowed between them.

Reads a JSON list of [where, code] from standard input. A statement that is an expression with a comment that begins
with a literal must have that value.
"""

import ast
import asyncio
import inspect
import json
import linecache
import re
import sys
from typing import Any

_VALUE = re.compile(r"# ([\[({'\"\d].*|None\b.*|True\b.*|False\b.*)$")


def run(where: str, code: str, loop: asyncio.AbstractEventLoop, names: dict[str, Any]) -> None:
    """Run one block."""
    # Where the scan for imports and tracebacks look for the source.
    linecache.cache[where] = (len(code), None, code.splitlines(keepends=True), where)
    for statement in ast.parse(code).body:
        is_expression = isinstance(statement, ast.Expr)
        tree = ast.Expression(statement.value) if is_expression else ast.Module([statement], [])
        compiled = compile(tree, where, "eval" if is_expression else "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        value = eval(compiled, names)
        if compiled.co_flags & inspect.CO_COROUTINE:
            value = loop.run_until_complete(value)
        said = _VALUE.search(code.splitlines()[statement.end_lineno - 1])
        if is_expression and said and not said[1].startswith(repr(value)):
            raise AssertionError(f"{where}, line {statement.lineno}: the value is {value!r}, not {said[1]}")


def main() -> None:
    """Run a page."""
    loop = asyncio.new_event_loop()
    names = sys.modules["__main__"].__dict__
    for where, code in json.load(sys.stdin):
        print(where, file=sys.stderr, flush=True)
        run(where, code, loop, names)


if __name__ == "__main__":
    main()
