"""What a section of ``make bench`` leaves in ``results/``: ``SECTION.json`` (all samples), ``SECTION.md`` (tables).

A section fills a :class:`Section` and hands it to :func:`write`::

    section = Section("start", "How long a call waits for its sandbox", settings={"rounds": 30})
    section.add({"imports": "pandas", "way": "cold"}, "s", seconds)
    section.tables.append(Table("Medians", ["imports", "cold"], [["pandas", 1.4]]))
    section.checks.append(Check("pandas: cold / ready", 63.0, "at least", 50))
    section.ratios["start pandas cold / ready"] = Ratio(63.0, better="higher")
    write(section, RESULTS)
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

RESULTS = Path(__file__).parent / "results"
MARGIN = 0.4
"""What a short run on a shared machine can be off by."""
EXACT_MARGIN = 0.1
"""For what is counted or simulated, not timed."""
_PACKAGES = ("celery", "redis", "dramatiq", "rq", "arq", "taskiq", "taskiq-redis", "cloudpickle")

Cell = str | int | float | None


@dataclass(frozen=True)
class Series:
    """Samples of one thing, in the order in which they were taken."""

    labels: Mapping[str, str | int | float]
    unit: str
    values: list[float]


@dataclass(frozen=True)
class Table:
    """For people. Numbers are shown with three digits that count; what needs others is text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


@dataclass(frozen=True)
class Check:
    """Whether a figure is what it has to be; ``low`` and ``high`` are the ends of its 95 % interval."""

    what: str
    value: float
    sense: Literal["at least", "at most"]
    limit: float
    low: float | None = None
    high: float | None = None

    @property
    def holds(self) -> bool:
        """Whether it is."""
        return self.value >= self.limit if self.sense == "at least" else self.value <= self.limit


@dataclass(frozen=True)
class Ratio:
    """A figure that ``make bench-check`` watches: the same on a faster machine."""

    value: float
    better: Literal["higher", "lower"]
    margin: float = MARGIN
    """By what share it may be worse."""

    @property
    def worst(self) -> float:
        """The last value that is no worse."""
        return self.value * (1 + self.margin) if self.better == "lower" else self.value / (1 + self.margin)


@dataclass
class Section:
    """One part of a run."""

    name: str
    title: str
    settings: dict[str, Any] = field(default_factory=dict)
    series: list[Series] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    ratios: dict[str, Ratio] = field(default_factory=dict)
    began_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def add(self, labels: Mapping[str, str | int | float], unit: str, values: Sequence[float]) -> None:
        """Keep samples."""
        self.series.append(Series(labels, unit, list(values)))


def write(section: Section, folder: Path) -> None:
    """Write a section's files."""
    folder.mkdir(parents=True, exist_ok=True)
    content = asdict(section) | {"machine": machine()}
    # One series a line, with as many digits as a clock is good for: small, and a change shows what changed.
    series = [
        json.dumps(one | {"values": [float(f"{value:.5g}") for value in one["values"]]})
        for one in content.pop("series")
    ]
    text = json.dumps(content, indent=1)
    (folder / f"{section.name}.json").write_text(
        text.removesuffix("\n}") + ',\n "series": [\n  ' + ",\n  ".join(series) + "\n ]\n}\n"
    )
    (folder / f"{section.name}.md").write_text(as_markdown(section))


def read(name: str, folder: Path = RESULTS) -> Section:
    """Read a section that was written."""
    content = json.loads((folder / f"{name}.json").read_text())
    del content["machine"]
    return Section(
        **content
        | {
            "series": [Series(**one) for one in content["series"]],
            "tables": [Table(**one) for one in content["tables"]],
            "checks": [Check(**one) for one in content["checks"]],
            "ratios": {what: Ratio(**one) for what, one in content["ratios"].items()},
        }
    )


def as_markdown(section: Section) -> str:
    """Return a section's tables as Markdown."""
    parts = [f"# {section.title}", f"Begun {section.began_at}. {_sentence(section.settings)}".rstrip()]
    for table in section.tables:
        parts += [f"## {table.title}", markdown_table(table.columns, table.rows), table.note]
    if section.checks:
        parts += ["## What must hold", checks_table(section.checks)]
    return "\n\n".join(part for part in parts if part) + "\n"


def checks_table(checks: Sequence[Check]) -> str:
    """Return whether figures are what they have to be, as Markdown."""
    rows = [
        [
            check.what,
            check.value,
            "" if check.low is None or check.high is None else f"{_shown(check.low)} to {_shown(check.high)}",
            f"{check.sense} {check.limit:g}",
            "yes" if check.holds else "**no**",
        ]
        for check in checks
    ]
    return markdown_table(["", "value", "95 %", "must be", "holds"], rows)


def machine() -> dict[str, Any]:
    """Return what a figure depends on."""
    cpu = Path("/proc/cpuinfo").read_text()
    memory = Path("/proc/meminfo").read_text()
    runsc = subprocess.run(
        [Path(sys.executable).parent / "runsc", "--version"], capture_output=True, text=True, check=False
    ).stdout.partition("\n")[0]
    return {
        "cpu": next((line.partition(": ")[2] for line in cpu.splitlines() if line.startswith("model name")), ""),
        "cores": os.cpu_count(),
        "memory_megabytes": int(memory.partition("MemTotal:")[2].split()[0]) // 1024,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "runsc": runsc.removeprefix("runsc version "),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _sentence(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in settings.items())


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Return a table as Markdown."""
    lines = [columns, ["---"] * len(columns), *([_shown(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _shown(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 100 else f"{cell:.3g}"
    return f"{cell:,}" if isinstance(cell, int) else cell
