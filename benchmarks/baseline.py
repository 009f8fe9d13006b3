"""Ratios as they were, and whether they are worse now: the same on any machine, as near as ratios are.

``baseline.json`` has a value, which way is better, and a margin for each: by what share it may be worse.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from .results import Ratio

BASELINE = Path(__file__).parent / "baseline.json"
_MARGIN = 0.4
"""What a short run on a shared machine can be off by."""
_EXACT_MARGIN = 0.1
_EXACT = "round trips"


@dataclass(frozen=True)
class Kept(Ratio):
    """A ratio and by what share it may be worse."""

    margin: float

    @property
    def worst(self) -> float:
        """The last value that is no worse."""
        return self.value * (1 + self.margin) if self.better == "lower" else self.value / (1 + self.margin)


def worse(measured: Mapping[str, Ratio], baseline: Mapping[str, Kept]) -> list[str]:
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
    kept = {
        name: Kept(float(f"{ratio.value:.3g}"), ratio.better, _EXACT_MARGIN if _EXACT in name else _MARGIN)
        for name, ratio in measured.items()
    }
    path.write_text(json.dumps({name: asdict(one) for name, one in kept.items()}, indent=2) + "\n")


def load(path: Path = BASELINE) -> dict[str, Kept]:
    """Read the baseline."""
    return {name: Kept(**one) for name, one in json.loads(path.read_text()).items()}
