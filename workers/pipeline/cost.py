"""Fitting the parameters of the cost model to what was measured."""

from collections.abc import Sequence
from statistics import median

from readie.protocol.catalogue import Cost


def fit(restores: Sequence[tuple[float, float]], cold_seconds: Sequence[float]) -> Cost:
    """Fit ``restores`` (megabytes, seconds) to a line; ``cold_seconds`` are starts without imports.

    By least squares of the relative errors: half as long again is as wrong for a small image as for a large one. A
    negative slope is noise where all images are of about one size: the line is then level.
    """
    weights = [1 / seconds**2 for _, seconds in restores]
    total = sum(weights)
    mean_megabytes = sum(weight * megabytes for weight, (megabytes, _) in zip(weights, restores, strict=True)) / total
    mean_seconds = sum(weight * seconds for weight, (_, seconds) in zip(weights, restores, strict=True)) / total
    spread = together = 0.0
    for weight, (megabytes, seconds) in zip(weights, restores, strict=True):
        spread += weight * (megabytes - mean_megabytes) ** 2
        together += weight * (megabytes - mean_megabytes) * (seconds - mean_seconds)
    slope = max(0.0, together / spread) if spread else 0.0
    base = mean_seconds - slope * mean_megabytes
    if base < 0:
        # Through the origin: nothing restores in less than no time.
        slope = sum(megabytes / seconds for megabytes, seconds in restores) / sum(
            (megabytes / seconds) ** 2 for megabytes, seconds in restores
        )
        base = 0.0
    return Cost(
        restore_base_seconds=base,
        restore_seconds_per_megabyte=slope,
        cold_base_seconds=median(cold_seconds),
    )


def restore_seconds(cost: Cost, megabytes: float) -> float:
    """Return the predicted restore of an image of this size."""
    return cost.restore_base_seconds + cost.restore_seconds_per_megabyte * megabytes
