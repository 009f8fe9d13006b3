"""What a sandbox has of this package's client: names that the user's own modules may mention there.

Such a module decorates its functions when it is imported. In a sandbox a remote function is the plain function, and
nothing else of the client is of use, for there is no way to the cluster. Standard library only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class InsideFunction:
    """A remote function inside a sandbox: calling it runs it right there."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.__wrapped__ = function
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it here."""
        return self.__wrapped__(*args, **kwargs)

    def local(self, *args: Any, **kwargs: Any) -> Any:
        """Run it here."""
        return self.__wrapped__(*args, **kwargs)

    async def aio(self, *args: Any, **kwargs: Any) -> Any:
        """Run it here."""
        value = self.__wrapped__(*args, **kwargs)
        return await value if hasattr(value, "__await__") else value

    def options(self, **_: Any) -> InsideFunction:
        """Return the same function: there is no other place for it."""
        return self

    def map(self, items: Any, **_: Any) -> Any:
        """Run it here for each item, in order."""
        return map(self.__wrapped__, items)

    def starmap(self, items: Any, **_: Any) -> Any:
        """Run it here for each tuple of arguments, in order."""
        return (self.__wrapped__(*item) for item in items)

    def __get__(self, instance: object, owner: type | None = None) -> InsideFunction:
        if instance is None and not isinstance(self.__wrapped__, (classmethod, staticmethod)):
            return self
        return InsideFunction(self.__wrapped__.__get__(instance, owner))


def remote(function: Callable[..., Any] | None = None, /, **_: Any) -> Any:
    """Decorate like ``readie.remote``; whatever the options, the function runs where it is called."""
    return InsideFunction if function is None else InsideFunction(function)


class _Absent:
    """Stands for a name of the client; to mention it is fine, to use it is not."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError(f"readie.{self._name} is for clients: a sandbox has no way to the cluster")

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return self()

    def __getitem__(self, _: Any) -> _Absent:
        return self

    def __mro_entries__(self, _: Any) -> tuple[type, ...]:
        return ()


def stand_in(name: str) -> Any:
    """Return what ``readie.<name>`` is inside a sandbox."""
    return remote if name == "remote" else InsideFunction if name == "RemoteFunction" else _Absent(name)
