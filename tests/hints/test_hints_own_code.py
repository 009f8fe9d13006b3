"""The user's own modules are looked into, installed ones are only named."""

import importlib
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from readie.hints import scan

Project = Callable[[dict[str, str]], None]
Define = Callable[[str], dict[str, Any]]


def test_relative_imports_are_resolved_against_the_functions_package(project: Project) -> None:
    project(
        {
            "shop/__init__.py": "",
            "shop/sub/__init__.py": "",
            "shop/sub/jobs.py": """
                def f():
                    from . import sibling
                    from .other import thing
                    from .. import top
                    from ..far.away import it
                    from importlib import import_module
                    import_module(".named", __package__)
                    import_module("..upper", __package__)
            """,
        }
    )
    found = scan(importlib.import_module("shop.sub.jobs").f).imports
    named = {"shop.sub.sibling", "shop.sub.other.thing", "shop.top", "shop.far.away.it", "shop.sub.named", "shop.upper"}
    assert set(found) == named | {"shop", "shop.sub"}


def test_an_own_helper_module_brings_what_it_imports_and_what_is_used_of_it(project: Project) -> None:
    project(
        {
            "helpers.py": """
                from typing import TYPE_CHECKING
                import arrays as np
                from blocks import *
                from more import deep
                if TYPE_CHECKING:
                    import frames
                class A:
                    import learn
                def used(): import used_inside
                def unused(): import unused_inside
            """,
            "more.py": "import retries\ndef deep(): ...",
            "jobs.py": "import helpers\ndef f(): return helpers.used()",
        }
    )
    expected = {"helpers", "arrays", "blocks", "more", "more.deep", "retries", "learn", "used_inside"}
    assert set(scan(importlib.import_module("jobs").f).imports) == expected


def test_an_own_module_imported_inside_is_followed_when_it_is_loaded(project: Project) -> None:
    project({"helpers.py": "def g(): import arrays", "jobs.py": "def f():\n from helpers import g\n return g()"})
    f = importlib.import_module("jobs").f
    assert scan(f).imports == ("helpers.g",)
    assert "helpers" not in sys.modules
    importlib.import_module("helpers")
    assert set(scan(f).imports) == {"arrays", "helpers", "helpers.g"}


def test_code_of_a_notebook_is_the_users_though_an_installed_tool_runs_it(
    in_cell: Define, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sys.modules["__main__"], "__file__", str(tmp_path / "site-packages" / "kernel.py"), raising=False
    )
    f = in_cell("class A:\n def g(self): import arrays\ndef f(): return A().g()")["f"]
    assert scan(f).imports == ("arrays",)


def test_what_installed_modules_import_and_hold_is_not_looked_at(in_file: Define) -> None:
    source = "import frames\ndf = frames.DataFrame()\ndef f(): return frames.DataFrame, df"
    assert "blocks" not in str(scan(in_file(source)["f"]))


def test_the_source_is_preferred_as_it_shows_literals_in_any_order(in_cell: Define, without_source: Define) -> None:
    source = "def f(x):\n from transformers import AutoModel\n"
    source += " AutoModel.from_pretrained(revision=x(1), pretrained_model_name_or_path='model')"
    with_source, bare = scan(in_cell(source)["f"]), scan(without_source(source)["f"])
    assert (with_source.models, bare.models) == (("model",), ())
    assert with_source.imports == bare.imports


def test_the_source_of_an_indented_function_is_read_though_text_in_it_is_at_the_margin(in_cell: Define) -> None:
    source = 'if True:\n    def f(x):\n        """\nat the margin\n"""\n'
    source += "        AutoModel.from_pretrained(revision=x(1), pretrained_model_name_or_path='model')"
    assert scan(in_cell(source)["f"]).models == ("model",)


def test_the_else_branch_of_not_type_checking_is_left_out(in_cell: Define) -> None:
    source = "TYPE_CHECKING = False\ndef f():\n if not TYPE_CHECKING:\n  import arrays\n else:\n  import frames"
    assert scan(in_cell(source)["f"]).imports == ("arrays",)


def test_a_module_that_cannot_be_read_costs_only_its_own_names(project: Project, tmp_path: Path) -> None:
    project({"helpers.py": "x = 1", "jobs.py": "import arrays, helpers\ndef f(): return helpers.x, arrays"})
    f = importlib.import_module("jobs").f
    (tmp_path / "project" / "helpers.py").write_text("this is no Python\n")
    assert scan(f).imports == ("arrays", "helpers")


def test_source_that_changed_on_disk_is_not_mistaken_for_the_function(in_file: Define) -> None:
    f = in_file("\n\ndef f(): import arrays\n")["f"]
    Path(inspect.getfile(f)).write_text("\n\ndef other():\n    import learn\n    return 'something longer'\n")
    assert scan(f).imports == ("arrays",)


def test_a_reloaded_function_is_read_anew(in_file: Define) -> None:
    f = in_file("def f(): import arrays\n")["f"]
    assert scan(f).imports == ("arrays",)
    Path(inspect.getfile(f)).write_text("def f(): import learn.svm\n")
    assert scan(importlib.reload(sys.modules[f.__module__]).f).imports == ("learn.svm",)


def test_a_function_whose_source_file_is_gone_is_read_from_its_bytecode(in_file: Define) -> None:
    f = in_file("def f():\n import arrays as np\n return np.linalg.norm(1)")["f"]
    Path(inspect.getfile(f)).unlink()
    assert scan(f).imports == ("arrays", "arrays.linalg.norm")


def test_a_scan_imports_nothing(in_file: Define) -> None:
    f = in_file("def f():\n import learn.svm\n from frames import DataFrame\n __import__('retries')")["f"]
    before = set(sys.modules)
    assert scan(f).imports == ("frames.DataFrame", "learn.svm", "retries")
    assert set(sys.modules) == before


def test_functions_of_c_extensions_are_named_by_their_module() -> None:
    module = importlib.import_module("hiredis.hiredis")
    pack = module.pack_command

    def f() -> object:
        return pack, json.dumps

    assert scan(f).imports == ("hiredis.hiredis.pack_command",)
