"""Calls everything; prints what came back as JSON."""

import functools
import importlib
import json
from dataclasses import dataclass
from enum import Enum

import redis
import tasks
from shop import kinds, prices, total

import readie
from readie import remote

results: dict[str, object] = {}


def fact(n):
    return n * fact(n - 1) if n else 1


def even(n):
    return odd(n - 1) if n else True


def odd(n):
    return even(n - 1) if n else False


class Size(Enum):
    SMALL = 1
    LARGE = 2


@dataclass
class Point:
    x: int
    size: Size = Size.SMALL

    @remote
    def moved(self, by: int) -> "Point":
        return Point(self.x + by, Size.LARGE)

    @remote
    @classmethod
    def origin(cls) -> "Point":
        return cls(0)


class BrokenError(Exception):
    def __init__(self, point: Point, *, why: str) -> None:
        super().__init__(why)
        self.point = point


def closure(offset):
    def add(n):
        return n + offset

    return add


@remote
def helpers(n):
    return [fact(n), even(n), list(map(lambda x: x + 1, [n])), functools.partial(pow, 2)(n)]


@remote
def breaks(point):
    raise BrokenError(point, why="it is")


@remote
def group():
    error = ValueError("inner")
    error.add_note("a note")
    raise ExceptionGroup("several", [error, KeyError("k")]) from OSError("cause")


@remote
def shopping(names):
    return [total(names), prices.total(names), prices.stock.tax()]


@remote
def late():
    from shop.late import VALUE

    return VALUE


@remote
def by_name(name):
    return importlib.import_module(name).VALUE


@remote
def secret():
    from shop.secret import VALUE

    return VALUE


@remote(env={"GREETING": "hello", "HOME": "/elsewhere"})
def environment():
    import os

    return [os.environ["GREETING"], os.environ["HOME"]]


@remote
def uses_redis():
    return redis.Redis


point = Point(1)
results["helpers"] = helpers(5)
results["closure"] = remote(closure(40))(2)
results["lambda"] = remote(lambda n: n * 2)(21)
results["partial"] = remote(functools.partial(pow, 2))(10)
moved = point.moved(4)
results["main classes"] = [moved == Point(5, Size.LARGE), type(moved) is Point, moved.size is Size.LARGE]
results["class method"] = Point.origin() == Point(0)
try:
    breaks(point)
except BrokenError as error:
    results["main exception"] = [error.point == point, isinstance(error, readie.RemoteError), str(error)]
try:
    group()
except* ValueError as caught:
    inner = caught.exceptions[0]
    results["group"] = [str(inner), inner.__notes__[0], type(caught.__cause__).__name__]
except* KeyError:
    results["group rest"] = True
results["shopping"] = shopping(["tea", "milk"])
results["shopping travels"] = shopping.explain().travels
results["shopping shown"] = "Travels" in str(shopping.explain())
results["shopping hints"] = shopping.explain().hints.imports
results["late"] = late()
results["include"] = by_name.options(include_modules=["shop"])("shop.late")
order = kinds.Order("tea", kinds.Colour.RED)
repaint = remote(kinds.repaint)
repainted = repaint(order)
results["own classes"] = [
    repainted == kinds.Order("tea", kinds.Colour.BLUE, 2),
    type(repainted) is kinds.Order,
    repainted.colour is kinds.Colour.BLUE,
]
try:
    repaint(kinds.Order("milk", kinds.Colour.RED, 0))
except kinds.SoldOutError as error:
    results["own exception"] = [str(error), error.since, error.order.name]
try:
    secret.options(exclude_modules=["shop.secret"])()
except ModuleNotFoundError as error:
    results["excluded"] = str(error)
results["exclude travels"] = secret.options(exclude_modules=["shop.secret"]).explain().travels
results["environment"] = environment()
results["tasks"] = [tasks.fibonacci(10), tasks.tenfold(5)]
try:
    uses_redis()
except ModuleNotFoundError as error:
    results["missing package"] = [error.name, str(error)]
print(json.dumps(results))
