"""Ratios as they were, and whether they are worse now: the same on any machine, as near as ratios are.

``baseline.json`` has a value, which way is better, and a margin for each: by what share it may be worse.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from .results import Ratio

BASELINE = Path(__file__).parent / "baseline.json"


def worse(measured: Mapping[str, Ratio], baseline: Mapping[str, Ratio]) -> list[str]:
    """Return a line for each ratio that is worse by more than its margin, or that was not measured."""
    found = []
    for name, kept in baseline.items():
        ratio = measured.get(name)
        if ratio is None:
            found.append(f"{name}: was not measured")
        elif ratio.value > kept.worst if kept.better == "lower" else ratio.value < kept.worst:
            limit = "most" if kept.better == "lower" else "least"
            found.append(f"{name}: {ratio.value:.3g}, was {kept.value:.3g} and may be {kept.worst:.3g} at {limit}")
    return found


def keep(measured: Mapping[str, Ratio], path: Path = BASELINE) -> None:
    """Make what was measured the baseline."""
    kept = {name: asdict(replace(ratio, value=float(f"{ratio.value:.3g}"))) for name, ratio in measured.items()}
    path.write_text(json.dumps(kept, indent=2) + "\n")


def load(path: Path = BASELINE) -> dict[str, Ratio]:
    """Read the baseline."""
    return {name: Ratio(**one) for name, one in json.loads(path.read_text()).items()}
