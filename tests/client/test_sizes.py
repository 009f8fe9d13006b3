"""Sizes as people write them."""

import pytest

from readie.sizes import format_bytes, in_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("2Gi", 2 << 30),
        ("2GiB", 2 << 30),
        ("512 Mi", 512 << 20),
        ("1.5G", 1_500_000_000),
        ("1kb", 1000),
        ("100", 100),
        (" 1ti ", 1 << 40),
        (12345, 12345),
    ],
)
def test_a_size_is_understood(text: str | int, count: int) -> None:
    assert in_bytes(text) == count


@pytest.mark.parametrize("text", ["", "much", "-1Gi", "1e3", "2Xi", "Gi", "i", "1 2Gi", "nan"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write a size as 2Gi"):
        in_bytes(text)


def test_a_size_is_shown_in_the_largest_unit_that_fits() -> None:
    assert [format_bytes(count) for count in (0, 1023, 1 << 20, 3 << 29)] == [
        "0 bytes",
        "1023 bytes",
        "1.0 MiB",
        "1.5 GiB",
    ]
