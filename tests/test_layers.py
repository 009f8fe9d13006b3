"""The packages depend on each other in one direction only."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT


def imported(path: Path) -> Iterator[str]:
    """Yield the absolute names of what a source file imports."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            yield ".".join(part for part in (base, node.module) if part)


def imports_below(folder: str) -> dict[str, set[str]]:
    """Return what each source file below a folder imports."""
    found = {str(path.relative_to(ROOT)): set(imported(path)) for path in (ROOT / folder).rglob("*.py")}
    assert found
    return found


def offenders(folder: str, *forbidden: str) -> list[str]:
    """Return the imports below a folder that begin with a forbidden package."""
    return [
        f"{path} imports {name}"
        for path, names in imports_below(folder).items()
        for name in names
        if any(name == package or name.startswith(package + ".") for package in forbidden)
    ]


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("readie", ("router", "workers", "celery", "kombu")),
        ("router", ("workers",)),
        ("workers", ("router",)),
        ("readie/protocol", ("redis", "readie.ledger", "readie.client")),
        ("workers/sandbox", ("workers.pipeline", "celery", "redis")),
    ],
)
def test_no_import_goes_the_wrong_way(folder: str, forbidden: tuple[str, ...]) -> None:
    assert offenders(folder, *forbidden) == []


def test_the_executor_needs_the_standard_library_and_cloudpickle_only() -> None:
    import sys

    allowed = sys.stdlib_module_names | {"cloudpickle"}
    foreign = {
        name
        for names in imports_below("workers/executor").values()
        for name in names
        if name.partition(".")[0] not in allowed
        and not name.startswith(("workers.executor", "readie.protocol.", "readie.hooks"))
    }
    assert foreign <= {"workers", "readie", "readie.protocol"}
