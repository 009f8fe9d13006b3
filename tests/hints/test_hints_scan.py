"""What a scan finds, however the function was defined: in a file, in a notebook cell, without source.

``cases.txt`` holds functions and the names that are found in them.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from readie.hints import scan

Define = Callable[[str], dict[str, Any]]

CASES = re.findall(r"^## (.+)\n((?:.*\n)+?)->(.*)$", Path(__file__).with_name("cases.txt").read_text(), re.MULTILINE)


@pytest.mark.parametrize(("source", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_imports_are_found(source: str, expected: str, define: Define) -> None:
    assert scan(define(source)["f"]).imports == tuple(expected.split())


def test_names_are_sorted_and_each_comes_once(define: Define) -> None:
    f = define("import learn\ndef f():\n import learn\n from arrays import zeros\n import arrays\n return learn")["f"]
    assert scan(f).imports == ("arrays", "arrays.zeros", "learn")


def test_models_tokenizers_and_datasets_are_named_by_literals(define: Define) -> None:
    source = """
        from transformers import AutoModel, AutoTokenizer as Tok, pipeline
        def f():
            from transformers import AutoModel as M
            from datasets import load_dataset
            Tok.from_pretrained("tokenizer-a")
            AutoModel.from_pretrained("model-a", device=1)
            M.from_pretrained(pretrained_model_name_or_path="model-b")
            pipeline("task", "model-c")
            pipeline("task", model="model-d", tokenizer="tokenizer-b")
            load_dataset("imdb", split="train")
            AutoModel.from_pretrained(str(1))
            AutoModel.from_pretrained("%s")
            make_pipeline("task", "no model")
    """
    found = scan(define(source.replace("%s", "x" * 10_000))["f"])
    assert found.models == ("model-a", "model-b", "model-c", "model-d")
    assert found.tokenizers == ("tokenizer-a", "tokenizer-b")
    assert found.datasets == ("imdb",)


def test_the_number_of_names_is_limited_and_the_short_ones_stay(define: Define) -> None:
    body = "\n".join(f" import deep.module{number}" for number in range(1000)) + "\n import zebra"
    found = scan(define(f"def f():\n{body}")["f"]).imports
    assert "zebra" in found
    assert len(found) == 256


def test_a_long_chain_of_helpers_ends(define: Define) -> None:
    helpers = "\n".join(f"def f{number}():\n import m{number}\n return f{number + 1}()" for number in range(3000))
    found = scan(define(helpers)["f0"]).imports
    assert "m0" in found
    assert "m250" not in found


def test_a_long_chain_of_objects_ends(define: Define) -> None:
    source = """
        import frames, arrays
        chain = [frames.DataFrame()]
        for _ in range(3000):
            chain = [chain]
        def f(): return chain, arrays
    """
    assert scan(define(source)["f"]).imports == ("arrays",)


def test_a_large_container_is_looked_at_in_part(define: Define) -> None:
    source = """
        import frames, arrays
        many = [object() for _ in range(100_000)]
        def f(): return many, arrays
    """
    assert scan(define(source)["f"]).imports == ("arrays",)
