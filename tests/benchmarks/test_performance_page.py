"""What `make bench` writes into the documentation, and by which names its parts are asked for."""

import re
from pathlib import Path

import pytest

from benchmarks.__main__ import FULL, SHORT, names
from benchmarks.document import DOCUMENT, fill
from benchmarks.results import Check, Section, Table, write
from benchmarks.start import WAYS

PAGE = """# Page

<!-- table: cost: Bytes -->
what stood here
<!-- end -->

<!-- table: start: medians -->
<!-- end -->

<!-- table: all: must hold -->
<!-- end -->
"""


def _page(folder: Path) -> Path:
    page = folder / "page.md"
    page.write_text(PAGE)
    return page


def test_places_of_a_partial_run_are_filled_and_the_others_say_that_nothing_was_measured(tmp_path: Path) -> None:
    page = _page(tmp_path)
    fill(tmp_path, page)
    assert page.read_text().count("*Not measured yet.*") == 3
    section = Section("cost", "Cost")
    section.tables.append(Table("Bytes", ["what", "value"], [["a", 1234.0]]))
    section.checks.append(Check("trips", 6.0, "at most", 8))
    write(section, tmp_path)
    fill(tmp_path, page)
    text = page.read_text()
    assert "| a | 1,234 |" in text
    assert "| trips | 6 |  | at most 8 | yes |" in text
    assert text.count("*Not measured yet.*") == 1
    assert "what stood here" not in text


def test_filling_again_changes_nothing(tmp_path: Path) -> None:
    page = _page(tmp_path)
    section = Section("start-none", "Start")
    for way in WAYS:
        section.add({"way": way}, "s", [0.1, 0.2, 0.3])
    write(section, tmp_path)
    (tmp_path / "cost.json").unlink(missing_ok=True)
    fill(tmp_path, page)
    once = page.read_text()
    fill(tmp_path, page)
    assert page.read_text() == once
    assert "| none | 200 |" in once


def test_a_table_that_its_section_does_not_have_is_an_error(tmp_path: Path) -> None:
    page = _page(tmp_path)
    write(Section("cost", "Cost", tables=[Table("Others", ["a"], [["b"]])]), tmp_path)
    with pytest.raises(KeyError, match="cost: Bytes"):
        fill(tmp_path, page)


def test_every_place_of_the_documentation_is_of_a_section_and_every_section_is_named_there() -> None:
    page = DOCUMENT.read_text()
    places = set(re.findall(r"<!-- table: (.+?): ", page))
    assert places == {re.sub("-.*", "", name) for name in FULL} | {"all"}
    assert [name for name in FULL if f"`{name}`" not in page] == []


def test_sections_are_asked_for_by_name() -> None:
    assert names("week start-pandas") == ["week", "start-pandas"]
    assert names("start")[0] == "start-none"
    assert set(names("")) == set(FULL) - {"start-torch"}
    with pytest.raises(SystemExit, match="no section weeks; there are start, start-none"):
        names("week weeks")


def test_a_short_run_has_what_the_simulations_say_of_decisions() -> None:
    assert {"week", "choices"} <= set(SHORT)
