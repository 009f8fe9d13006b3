"""Imports another module of the project, which imports this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cloudpickle

from . import stock

if TYPE_CHECKING:
    import a_package_for_type_checkers  # noqa: F401

TAX = 2


def total(names: list[str]) -> int:
    prices: list[int] = cloudpickle.loads(cloudpickle.dumps([stock.price(name) for name in names]))
    return sum(prices) * TAX
