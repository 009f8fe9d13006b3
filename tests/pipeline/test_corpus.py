"""Corpus files, and the one that is shipped."""

from pathlib import Path

import pytest

from tests.conftest import ROOT
from workers.pipeline.corpus import read_corpus
from workers.pipeline.flavor import FlavorError

DEFAULT = ROOT / "flavors" / "default"


def test_sets_with_the_same_imports_add_up_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "one").write_text('{"imports": ["b", "a", "a"], "weight": 2}\n\n{"imports": []}\n')
    (tmp_path / "two").write_text('{"imports": ["a", "b"], "note": "tables"}\n')
    found = read_corpus(tmp_path / "one", tmp_path / "two")
    assert [(line.imports, line.weight) for line in found.sets] == [((), 1.0), (("a", "b"), 3.0)]
    assert str(tmp_path / "two") in found.source


def test_the_digest_depends_on_what_a_plan_depends_on_alone(tmp_path: Path) -> None:
    def digest(*lines: str) -> str:
        (tmp_path / "corpus").write_text("\n".join(lines))
        return read_corpus(tmp_path / "corpus").digest

    first = digest('{"imports": ["a"]}', '{"imports": ["b"], "weight": 2, "note": "x"}')
    assert digest('{"imports": ["b"], "weight": 2.0}', '{"imports": ["a"], "weight": 1}') == first
    assert digest('{"imports": ["a"]}', '{"imports": ["b"], "weight": 3}') != first
    assert digest('{"imports": ["a"]}', '{"imports": ["c"], "weight": 2}') != first


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"imports": "numpy"}', "corpus:2: imports"),
        ('{"imports": ["a"], "weight": 0}', "corpus:2: weight"),
        ('{"imports": ["a"], "weight": "NaN"}', "corpus:2: weight"),
        ('{"import": ["a"]}', "corpus:2: imports"),
        ("numpy pandas", "corpus:2: Invalid JSON"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, says: str) -> None:
    (tmp_path / "corpus").write_text('{"imports": []}\n' + line)
    with pytest.raises(FlavorError, match=says):
        read_corpus(tmp_path / "corpus")


def test_a_corpus_that_is_missing_or_empty_is_said(tmp_path: Path) -> None:
    with pytest.raises(FlavorError, match="can't be read"):
        read_corpus(tmp_path / "nowhere")
    (tmp_path / "empty").touch()
    with pytest.raises(FlavorError, match="no import sets"):
        read_corpus(tmp_path / "empty")


def test_the_shipped_corpus_names_every_package_of_its_flavor() -> None:
    found = read_corpus(DEFAULT / "corpus.jsonl")
    assert len(found.sets) >= 300
    tops = {name.partition(".")[0] for line in found.sets for name in line.imports}
    imported_as = {"pillow": "PIL", "scikit-learn": "sklearn"}
    required = (DEFAULT / "requirements.txt").read_text().split()
    assert {imported_as.get(name, name) for name in required} <= tops
