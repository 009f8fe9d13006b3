"""A decorated function still is the function; methods know whose they are."""

import inspect
import subprocess
import sys

import pytest

import readie
from readie import remote
from readie.errors import ConfigurationError


@remote(timeout=7)
def area(width: float, height: float = 2.0) -> float:
    """Multiply."""
    return width * height


class Shop:
    def __init__(self, prices: dict[str, int]) -> None:
        self.prices = prices

    @remote
    def price(self, item: str) -> int:
        return self.prices[item]

    @remote
    @classmethod
    def empty(cls, kind: str) -> tuple[str, str]:
        return cls.__name__, kind

    @remote
    @staticmethod
    def twice(number: int) -> int:
        return 2 * number


def test_it_has_the_functions_name_signature_and_documentation() -> None:
    assert (area.__name__, area.__doc__, area.__module__) == ("area", "Multiply.", __name__)
    assert inspect.signature(area) == inspect.signature(area.__wrapped__)
    assert inspect.unwrap(area) is area.__wrapped__


def test_methods_are_bound_to_their_object_or_class() -> None:
    shop = Shop({"tea": 3})
    assert shop.price.local("tea") == 3
    assert Shop.price.local(shop, "tea") == 3
    assert Shop.empty.local("corner") == shop.empty.local("corner") == ("Shop", "corner")
    assert Shop.twice.local(4) == shop.twice.local(4) == 8
    assert shop.price.__name__ == "price"


def test_changed_options_are_a_copy() -> None:
    changed = area.options(timeout=1, retries=3)
    assert changed is not area
    assert changed.local(3) == area.local(3)
    assert (area._options.timeout, changed._options.timeout) == (7, 1)
    assert (area._options.retries, changed._options.retries) == (None, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retrys": 3}, "did you mean 'retries'"),
        ({"enviroment": {}}, "did you mean 'env"),
        ({"retries": -1}, "retries=-1"),
        ({"retries": True}, "retries=True"),
        ({"env": {"A": 1}}, "names and values are strings"),
        ({"env": {"A=B": "x"}}, "no name of an environment variable"),
        ({"env": ["A"]}, "give a mapping"),
        ({"gpu": "yes"}, "give True or False"),
        ({"include_modules": "project"}, "give names of modules"),
        ({"exclude_modules": ["no-name"]}, "give names of modules"),
    ],
)
def test_a_wrong_option_fails_at_decoration(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        remote(**options)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"times": -1}, "times=-1"),
        ({"times": 1, "after": ["ValueError"]}, "tuple of exception classes"),
        ({"times": 1, "delay": float("inf")}, "delay=inf"),
        ({"times": 1, "factor": 0.5}, "factor=0.5"),
    ],
)
def test_a_wrong_retry_policy_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        readie.Retries(**arguments)  # type: ignore[arg-type]


def test_importing_the_package_prints_nothing_connects_to_nothing_and_loads_little() -> None:
    program = """
import sys, time
began = time.perf_counter()
import json, dataclasses, inspect, difflib, ast  # what costs most of what is needed, standard library alone
standard = time.perf_counter() - began
before = set(sys.modules)
began = time.perf_counter()
import readie
@readie.remote(timeout=3, retries=1)
def f(): ...
ours = time.perf_counter() - began
heavy = {"redis", "pydantic", "cloudpickle", "rich", "asyncio", "socket"} & set(sys.modules)
print(sorted(heavy), len(set(sys.modules) - before), ours / standard)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    heavy, modules, ratio = done.stdout.replace("[", "").replace("]", ",").rsplit(maxsplit=2)
    assert heavy == ",", "these are loaded when they are needed"
    assert int(modules) < 40
    assert float(ratio) < 5
