"""Puts the tables of the results that are there into ``docs/performance.md``, between its markers.

What stands between ``<!-- table: SECTION: TITLE -->`` and ``<!-- end -->`` is replaced by that table.
"""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median

from .results import Cell, Section, Table, checks_table, markdown_table, read
from .sampling import ratio_of_medians
from .start import IMPORT_SETS, WAYS

DOCUMENT = Path(__file__).parent.parent / "docs" / "performance.md"
_NOT_MEASURED = "*Not measured yet.*"
_PLACE = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(folder: Path, document: Path = DOCUMENT) -> None:
    """Fill every place of the document; raises ``KeyError`` for a table that a section does not have.

    Where a section has not been measured, the place says so.
    """
    sections = [read(path.stem, folder) for path in sorted(folder.glob("*.json"))]
    tables = {f"{section.name}: {table.title}": _text(table) for section in sections for table in section.tables}
    tables |= {f"start: {table.title}": _text(table) for table in _of_starts(sections)}
    checks = [check for section in sections for check in section.checks]
    if checks:
        tables["all: must hold"] = checks_table(checks)
    measured = {name.partition(":")[0] for name in tables}

    def filled(place: re.Match[str]) -> str:
        section = place[2].partition(":")[0]
        return f"{place[1]}\n{tables[place[2]] if section in measured else _NOT_MEASURED}\n\n{place[3]}"

    document.write_text(_PLACE.sub(filled, document.read_text()))


def _text(table: Table) -> str:
    return "\n\n".join(part for part in (markdown_table(table.columns, table.rows), table.note) if part)


def _of_starts(sections: list[Section]) -> list[Table]:
    by_name = {section.name: section for section in sections}
    starts = {name: by_name[f"start-{name}"] for name in IMPORT_SETS if f"start-{name}" in by_name}
    seconds = {
        name: {way: next(one.values for one in section.series if dict(one.labels) == {"way": way}) for way in WAYS}
        for name, section in starts.items()
    }
    medians: list[list[Cell]] = [[name, *(1e3 * median(of[way]) for way in WAYS)] for name, of in seconds.items()]
    ratios: list[list[Cell]] = []
    for name, of in seconds.items():
        found = [ratio_of_medians(of["cold"], of[way]) for way in WAYS if way not in {"cold", "bare"}]
        ratios.append([name, *(f"{one.value:.3g} ({one.low:.3g} to {one.high:.3g})" for one in found)])
    if not starts:
        return []
    return [
        Table("medians", ["imports", *WAYS], medians),
        Table("cold against", ["imports", *(way for way in WAYS if way not in {"cold", "bare"})], ratios),
    ]
