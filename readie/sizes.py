"""Sizes as people write them."""

import re
from typing import Final

_FACTORS: Final = {
    "": 1,
    **{letter: 1000**power for power, letter in enumerate("KMGT", 1)},
    **{f"{letter}I": 1024**power for power, letter in enumerate("KMGT", 1)},
}


def in_bytes(size: str | int) -> int:
    """Return the number of bytes that ``"2Gi"``, ``"1.5GB"``, ``"512 MiB"``, ``"1000000"`` or 1000000 means.

    Raises:
        ValueError: it is no size.
    """
    if isinstance(size, int):
        return size
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?\s*", size.upper())
    if match is None or match[2] not in _FACTORS:
        raise ValueError("write a size as 2Gi, 512Mi, 1.5G or a number of bytes")
    return int(float(match[1]) * _FACTORS[match[2]])


def format_bytes(count: int) -> str:
    """Return a size for people, ``1.5 GiB``."""
    size, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
