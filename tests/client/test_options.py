"""Options are checked where the function is decorated."""

import pytest

from readie import Retries, remote
from readie.errors import ConfigurationError, InvalidRequestError


def test_an_unknown_option_names_the_nearest_known_one() -> None:
    with pytest.raises(ConfigurationError, match="no option 'timeot'; did you mean 'timeout'"):
        remote(timeot=3)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"timeout": 0}, "timeout=0"),
        ({"timeout": "soon"}, "timeout='soon'"),
        ({"checkpoint_id": "../x"}, "checkpoint_id"),
        ({"expires": 0}, "expires=0"),
        ({"expires": float("inf")}, "expires=inf"),
        ({"timeout": 1e300}, "timeout=1e\\+300"),
        ({"timeout": 10**400}, "at most 1e"),
        ({"cpu": 1e9}, "at most 10,000"),
        ({"name": "two\nlines"}, "can be printed"),
        ({"priority": 10}, "priority=10"),
        ({"priority": -1}, "priority=-1"),
        ({"priority": True}, "priority=True"),
        ({"priority": 1.5}, "priority=1.5"),
        ({"flavor": "Not a name"}, "flavor='Not a name'"),
        ({"flavor": None}, "flavor=None"),
        ({"packages": "httpx"}, "packages='httpx'"),
        ({"packages": ["x @ https://example.org/x.whl"]}, "is no requirement"),
        ({"packages": ["-r /etc/passwd"]}, "is no requirement"),
    ],
)
def test_a_wrong_value_is_named(options: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        remote(**options)  # type: ignore[call-overload]


def test_a_wrong_value_of_retries_is_named() -> None:
    with pytest.raises(ConfigurationError, match="delay=1e\\+300"):
        Retries(2, delay=1e300)


def test_a_pin_can_not_be_combined_with_the_opt_out() -> None:
    with pytest.raises(InvalidRequestError, match="leave one of them out"):
        remote(checkpoint_id="checkpoint_1", disable_optimized_execution=True)
    pinned = remote(checkpoint_id="checkpoint_1")(len)
    with pytest.raises(InvalidRequestError):
        pinned.options(disable_optimized_execution=True)
    assert pinned.options(checkpoint_id=None, disable_optimized_execution=True)


def test_a_decorated_function_still_is_the_function() -> None:
    @remote
    def area(width: float, height: float = 2.0) -> float:
        """Multiply."""
        return width * height

    assert area.__name__ == "area"
    assert area.__doc__ == "Multiply."
    assert area.local(3) == 6.0


def test_something_that_can_not_be_called_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="decorates a function, not int"):
        remote(3)  # type: ignore[call-overload]
