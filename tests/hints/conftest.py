"""Real packages on disk: some below a ``site-packages`` folder, and the user's own project beside it."""

import importlib
import itertools
import linecache
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

INSTALLED = {
    "arrays/__init__.py": """
        from arrays import linalg
        pi = 3.14
        class ndarray: pass
        def zeros(size): return ndarray()
    """,
    "arrays/linalg.py": "def norm(x): return 0",
    "frames/__init__.py": "from frames.core import DataFrame",
    "frames/core.py": """
        import blocks
        class DataFrame:
            def __init__(self): self.managers = [blocks.Manager()]
    """,
    "blocks.py": "class Manager: pass",
    "learn/__init__.py": "",
    "learn/svm.py": "class LinearSVC: pass",
    "retries.py": """
        import blocks, functools
        def wrapping(f):
            @functools.wraps(f)
            def inner(*args): return f(*args)
            return inner
        def hiding(f):
            manager = blocks.Manager()
            def inner(*args): return f(manager, *args)
            return inner
        class Job:
            def __init__(self, f): self.__wrapped__, self.scheduler = f, lambda: __import__("blocks")
        class Command:
            def __init__(self, callback): self.callbacks = [callback]
            def __call__(self): return self.callbacks[0]()
    """,
    "transformers.py": """
        class AutoModel:
            @classmethod
            def from_pretrained(cls, name, **options): ...
        class AutoTokenizer(AutoModel): ...
        def pipeline(task, model=None, config=None, tokenizer=None): ...
    """,
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    importlib.invalidate_caches()


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    write(tmp_path / "site-packages", INSTALLED)
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    """Write files of the user's own, importable."""
    monkeypatch.syspath_prepend(str(tmp_path / "project"))
    return lambda files: write(tmp_path / "project", files)


Define = Callable[[str], dict[str, Any]]
_numbers = itertools.count()


@pytest.fixture
def in_file(project: Callable[[dict[str, str]], None]) -> Define:
    """Run source text as a module of the user's own; yields its globals, as the next ones do."""

    def define(source: str) -> dict[str, Any]:
        name = f"jobs{next(_numbers)}"
        project({f"{name}.py": source})
        return vars(importlib.import_module(name))

    return define


@pytest.fixture
def in_cell() -> Define:
    """As IPython does: the source is in ``linecache`` under a name that is no file."""

    def define(source: str) -> dict[str, Any]:
        filename = f"<ipython-input-{next(_numbers)}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        return _run(source, filename)

    return define


@pytest.fixture
def without_source() -> Define:
    """As the REPL and ``python -c`` do."""
    return lambda source: _run(source, "<stdin>")


def _run(source: str, filename: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, filename, "exec"), namespace)
    return namespace


@pytest.fixture(params=["in_file", "in_cell", "without_source"])
def define(request: pytest.FixtureRequest) -> Define:
    """Run source text in each of the ways a user can."""
    chosen: Define = request.getfixturevalue(request.param)
    return lambda source: chosen(textwrap.dedent(source))
