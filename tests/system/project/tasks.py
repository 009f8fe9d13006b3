"""Remote functions in a module of the project."""

from readie import Call, remote

__all__ = ["Call", "fibonacci", "tenfold"]


@remote(timeout=60)
def fibonacci(number: int) -> int:
    return number if number < 2 else fibonacci(number - 1) + fibonacci(number - 2)


@remote
def tenfold(number: int) -> int:
    from tasks import fibonacci as again  # the module itself, imported where this runs

    return 10 * again(number) + again.local(1) + sum(again.map([1, 2]))
