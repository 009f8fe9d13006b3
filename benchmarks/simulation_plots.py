"""Plots of what was simulated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt

from .decisions import ORACLE, OURS
from .results import RESULTS, Section, read

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_PARTS_OF_DAY = 4


def draw_week(section: Section, path: Path) -> None:
    """Draw the mean start of each quarter of a day, by rule."""
    figure, axes = plt.subplots(figsize=(9, 4))
    for series in section.series:
        name = str(series.labels["rule"])
        days = [(part + 0.5) / _PARTS_OF_DAY for part in range(len(series.values))]
        width = 2.0 if name in {OURS, ORACLE} else 1.0
        style = "--" if name == ORACLE else "-"
        axes.plot(days, [1e3 * value for value in series.values], style, lw=width, label=name)
    axes.set_yscale("log")
    axes.set_xticks([day + 0.5 for day in range(len(DAYS))], DAYS)
    axes.set_ylabel("mean start, ms")
    axes.legend(ncols=4, frameon=False, loc="upper left", bbox_to_anchor=(0, 1.2))
    _save(figure, path)


def draw_load(section: Section, loaded: int, path: Path) -> None:
    """Draw the start over the load of a cluster with so many workers."""
    points = sorted(
        (float(series.labels["calls a minute"]) / loaded, str(series.labels["what"]), series.values)
        for series in section.series
        if series.labels["workers"] == loaded
    )
    figure, axes = plt.subplots(figsize=(6, 4))
    for what, position, label in (("start", 0, "start p50"), ("start", 2, "start p99"), ("wait", 2, "wait p99")):
        of_it = [(load, 1e3 * values[position]) for load, which, values in points if which == what]
        axes.plot([load for load, _ in of_it], [value for _, value in of_it], "o-", ms=3, label=label)
    axes.set_xlabel("calls a minute for each worker")
    axes.set_ylabel("ms")
    axes.set_yscale("symlog", linthresh=10)
    axes.legend(frameon=False)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    draw_week(read("week"), RESULTS / "week.svg")
    draw_load(read("simulation"), 50, RESULTS / "simulation.svg")
