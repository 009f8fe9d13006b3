"""Classes of which instances go to and fro."""

from dataclasses import dataclass
from enum import Enum


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclass
class Order:
    name: str
    colour: Colour
    count: int = 1


class SoldOutError(Exception):
    def __init__(self, order: Order, *, since: int) -> None:
        super().__init__(f"{order.name} is sold out")
        self.order = order
        self.since = since


def repaint(order: Order) -> Order:
    if order.count == 0:
        raise SoldOutError(order, since=1999)
    return Order(order.name, Colour.BLUE, order.count + 1)
