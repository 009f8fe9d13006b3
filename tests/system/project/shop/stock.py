"""Imports the module that imports this one."""

import shop.prices


def price(name: str) -> int:
    return len(name)


def tax() -> int:
    return shop.prices.TAX
