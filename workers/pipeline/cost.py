"""Fitting the parameters of the cost model to what was measured."""

from collections.abc import Sequence
from statistics import fmean, median

from readie.protocol.catalogue import Cost


def fit(restores: Sequence[tuple[float, float]], cold_seconds: Sequence[float]) -> Cost:
    """Fit ``restores`` (megabytes, seconds) to a line by least squares; ``cold_seconds`` are starts without imports.

    A negative slope is noise where all images are of about one size: the line is then level at the mean.
    """
    mean_megabytes = fmean(megabytes for megabytes, _ in restores)
    mean_seconds = fmean(seconds for _, seconds in restores)
    spread = sum((megabytes - mean_megabytes) ** 2 for megabytes, _ in restores)
    together = sum((megabytes - mean_megabytes) * (seconds - mean_seconds) for megabytes, seconds in restores)
    slope = max(0.0, together / spread) if spread else 0.0
    base = mean_seconds - slope * mean_megabytes
    if base < 0:
        # Through the origin: nothing restores in less than no time.
        slope = sum(megabytes * seconds for megabytes, seconds in restores) / sum(m * m for m, _ in restores)
        base = 0.0
    return Cost(
        restore_base_seconds=base,
        restore_seconds_per_megabyte=slope,
        cold_base_seconds=median(cold_seconds),
    )
