"""Functions that modules of a flavor register to take part in the snapshot of a checkpoint.

A module that a checkpoint imports can close what must not be copied into every clone (connections, threads) before
the snapshot, and make anew what each clone needs for itself after the restore::

    import readie

    @readie.before_snapshot
    def close_pool() -> None: ...

    @readie.after_restore
    def seed() -> None: ...

Standard library only: the executor imports this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

_Hook = TypeVar("_Hook", bound=Callable[[], object])

_before_snapshot: list[Callable[[], object]] = []
_after_restore: list[Callable[[], object]] = []


def before_snapshot(hook: _Hook) -> _Hook:
    """Register ``hook`` to run once, after all imports and before the snapshot is taken; returns it unchanged.

    A hook that raises fails the capture: no checkpoint is made of such a process.

    Example:
        ```python
        @readie.before_snapshot
        def close_pool() -> None:
            pool.close()
        ```
    """
    _before_snapshot.append(hook)
    return hook


def after_restore(hook: _Hook) -> _Hook:
    """Register ``hook`` to run in every restored process before it takes a call; returns it unchanged.

    It runs in the order of registration, after generators of random numbers were reseeded, and not in a process that
    was started cold. A hook that raises ends that process; the call then starts cold.

    Example:
        ```python
        @readie.after_restore
        def seed() -> None:
            generator.seed(os.urandom(32))
        ```
    """
    _after_restore.append(hook)
    return hook


def run_before_snapshot() -> None:
    """Run the registered ``before_snapshot`` hooks in order."""
    for hook in _before_snapshot:
        hook()


def run_after_restore() -> None:
    """Run the registered ``after_restore`` hooks in order."""
    for hook in _after_restore:
        hook()
