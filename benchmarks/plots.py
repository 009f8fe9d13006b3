"""Plots of the results that are there, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt

from .calls import IN_FLIGHT, SIZES
from .decisions import ORACLE, OURS, PARTS_OF_DAY
from .results import Section, read
from .sampling import percentile
from .simulation import LOADED
from .start import CALL_WAYS, IMPORT_SETS, PHASES, WAYS

_STYLE: dict[str, Any] = {
    "svg.hashsalt": "readie",  # the same results make the same file
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.alpha": 0.3,
    "axes.axisbelow": True,
    "figure.constrained_layout.use": True,
}
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def draw(folder: Path) -> None:
    """Draw every plot that there are results for."""
    with mpl.rc_context(_STYLE):
        starts = {name: read(f"start-{name}", folder) for name in IMPORT_SETS if _is_there(f"start-{name}", folder)}
        if starts:
            _draw_starts(starts, folder)
            _draw_phases(starts, folder)
        for name, plot in _PLOTS.items():
            if _is_there(name, folder):
                plot(read(name, folder), folder)


def _is_there(name: str, folder: Path) -> bool:
    return (folder / f"{name}.json").exists()


def _values(section: Section, **labels: str | int) -> list[float]:
    return next(one.values for one in section.series if dict(one.labels) == labels)


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _bars(
    axes: Any, groups: Sequence[str], bars: dict[str, Sequence[float]], errors: dict[str, Any] | None = None
) -> None:
    width = 0.85 / len(bars)
    for number, (name, heights) in enumerate(bars.items()):
        places = [group + (number - (len(bars) - 1) / 2) * width for group in range(len(groups))]
        axes.bar(places, heights, width, label=name, yerr=errors[name] if errors else None, error_kw={"lw": 0.7})
    axes.set_xticks(range(len(groups)), groups)


def _draw_starts(starts: dict[str, Section], folder: Path) -> None:
    figure, axes = plt.subplots(figsize=(9, 4))
    milliseconds = {way: [[1e3 * value for value in _values(one, way=way)] for one in starts.values()] for way in WAYS}
    _bars(
        axes,
        list(starts),
        {way: [median(values) for values in of] for way, of in milliseconds.items()},
        {
            way: [
                [max(0.0, median(values) - percentile(values, 5)) for values in of],
                [max(0.0, percentile(values, 95) - median(values)) for values in of],
            ]
            for way, of in milliseconds.items()
        },
    )
    axes.set_yscale("log")
    axes.set_ylabel("ms from submission to value\n(median, p5 to p95)")
    axes.legend(ncols=4, frameon=False, loc="upper left", bbox_to_anchor=(0, 1.2))
    _save(figure, folder / "start.svg")


def _draw_phases(starts: dict[str, Section], folder: Path) -> None:
    ways = [way for way in CALL_WAYS if way != "cold"]
    figure, all_axes = plt.subplots(1, len(ways), figsize=(11, 3.6))
    colors = plt.get_cmap("tab20").colors
    for axes, way in zip(all_axes, ways, strict=True):
        bottom = [0.0] * len(starts)
        for number, phase in enumerate(PHASES):
            heights = [1e3 * median(_values(one, way=way, phase=phase)) for one in starts.values()]
            axes.bar(list(starts), heights, 0.7, bottom=bottom, label=phase, color=colors[number])
            bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
        axes.set_title(way, fontsize=9)
        axes.tick_params(axis="x", rotation=60)
    all_axes[0].set_ylabel("ms, median of each phase")
    all_axes[-1].legend(frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    _save(figure, folder / "start-phases.svg")


def _draw_calls(section: Section, folder: Path) -> None:
    systems = list(dict.fromkeys(str(one.labels["system"]) for one in section.series))
    figure, (latency, rate) = plt.subplots(1, 2, figsize=(11, 3.8))
    nothing = {name: _values(section, system=name, bytes=0) for name in systems}
    _bars(
        latency,
        systems,
        {
            "p50": [1e3 * median(values) for values in nothing.values()],
            "p99": [1e3 * percentile(values, 99) for values in nothing.values()],
        },
    )
    latency.set_yscale("log")
    latency.set_ylabel("ms, a task that does nothing")
    _bars(
        rate,
        systems,
        {
            f"{number} in flight": [median(_values(section, system=name, **{"in flight": number})) for name in systems]
            for number in IN_FLIGHT
        },
    )
    rate.set_yscale("log")
    rate.set_ylabel("calls a second")
    for axes in (latency, rate):
        axes.tick_params(axis="x", rotation=60)
        axes.legend(frameon=False)
    _save(figure, folder / "calls.svg")
    figure, axes = plt.subplots(figsize=(7, 4))
    sizes = sorted({int(one.labels["bytes"]) for one in section.series if "bytes" in one.labels})
    labels = [dict(one.labels) for one in section.series]
    for name in systems:
        known = [size for size in sizes if {"system": name, "bytes": size} in labels]
        axes.plot(
            [SIZES[size] for size in known],
            [1e3 * median(_values(section, system=name, bytes=size)) for size in known],
            marker="o",
            ms=3,
            label=name,
            lw=2 if name.startswith("readie") else 1,
        )
    axes.set_yscale("log")
    axes.set_ylabel("ms round trip, median")
    axes.set_xlabel("argument")
    axes.legend(frameon=False)
    _save(figure, folder / "payloads.svg")


def _draw_router(section: Section, folder: Path) -> None:
    fleets = [dict(one.labels) for one in section.series if one.labels["what"] == "calls placed"]
    base = fleets[0]
    axes_of = ("workers", "checkpoints", "modules", "waiting", "routers")
    figure, all_axes = plt.subplots(1, len(axes_of), figsize=(11, 2.8), sharey=True)
    for axes, what in zip(all_axes, axes_of, strict=True):
        same = [fleet for fleet in fleets if all(fleet[key] == base[key] for key in axes_of if key != what)]
        same.sort(key=lambda fleet: fleet[what])
        axes.plot([str(fleet[what]) for fleet in same], [_values(section, **fleet)[0] for fleet in same], marker="o")
        axes.set_xlabel(what)
        axes.set_ylim(0)
    all_axes[0].set_ylabel("calls placed a second")
    _save(figure, folder / "router.svg")


def _draw_workers(section: Section, folder: Path) -> None:
    counts = sorted({int(one.labels["workers"]) for one in section.series})
    kinds = list(dict.fromkeys(str(one.labels["calls"]) for one in section.series))
    figure, all_axes = plt.subplots(1, len(kinds), figsize=(8, 2.8))
    for axes, kind in zip(all_axes, kinds, strict=True):
        axes.bar(
            [str(count) for count in counts],
            [median(_values(section, workers=count, calls=kind)) for count in counts],
            0.6,
        )
        axes.set_title(kind, fontsize=9)
        axes.set_xlabel("workers")
    all_axes[0].set_ylabel("calls a second")
    _save(figure, folder / "workers.svg")


def _draw_week(section: Section, folder: Path) -> None:
    """Draw the mean start of each quarter of a day, by rule."""
    figure, axes = plt.subplots(figsize=(9, 4))
    for series in section.series:
        name = str(series.labels["rule"])
        days = [(part + 0.5) / PARTS_OF_DAY for part in range(len(series.values))]
        width = 2.0 if name in {OURS, ORACLE} else 1.0
        style = "--" if name == ORACLE else "-"
        axes.plot(days, [1e3 * value for value in series.values], style, lw=width, label=name)
    axes.set_yscale("log")
    axes.set_xticks([day + 0.5 for day in range(len(_DAYS))], _DAYS)
    axes.set_ylabel("mean start, ms")
    axes.legend(ncols=3, frameon=False, loc="upper left", bbox_to_anchor=(0, 1.3))
    _save(figure, folder / "week.svg")


def _draw_simulation(section: Section, folder: Path) -> None:
    """Draw the start over the load of a cluster."""
    points = sorted(
        (float(series.labels["calls a minute"]) / LOADED, str(series.labels["what"]), series.values)
        for series in section.series
        if series.labels["workers"] == LOADED
    )
    figure, axes = plt.subplots(figsize=(6, 4))
    for what, position, label in (("start", 0, "start p50"), ("start", 2, "start p99"), ("wait", 2, "wait p99")):
        of_it = [(load, 1e3 * values[position]) for load, which, values in points if which == what]
        axes.plot([load for load, _ in of_it], [value for _, value in of_it], "o-", ms=3, label=label)
    axes.set_xlabel("calls a minute for each worker")
    axes.set_ylabel("ms")
    axes.set_yscale("symlog", linthresh=10)
    axes.legend(frameon=False)
    _save(figure, folder / "simulation.svg")


_PLOTS = {
    "calls": _draw_calls,
    "router": _draw_router,
    "workers": _draw_workers,
    "week": _draw_week,
    "simulation": _draw_simulation,
}
