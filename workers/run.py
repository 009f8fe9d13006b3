"""What one call gathers on its way through the worker."""

import contextlib
import time
from dataclasses import dataclass

from readie.protocol.call import CallHeader
from readie.protocol.envelope import Failure
from readie.protocol.payload import Buffer

from .control import RunningCall
from .packages.layers import Layer
from .sandbox.starter import Started
from .serving import Stage
from .sessions import OpenSession


class Phases(dict[str, float]):
    """Seconds by phase; a phase entered twice (a restore that fails, then a cold start) adds up."""

    def __init__(self) -> None:
        super().__init__()
        self._since = time.perf_counter()

    def end(self, name: str) -> None:
        """Close the phase that began where the last one ended."""
        now = time.perf_counter()
        self[name] = self.get(name, 0.0) + now - self._since
        self._since = now


@dataclass(slots=True)
class Run:
    """What one call gathers on its way; owned by the thread that runs it."""

    header: CallHeader
    stage: Stage
    hold: contextlib.ExitStack
    """Keeps the stage; a session that the call opens takes it over."""
    phases: Phases
    call: RunningCall
    started: Started | None = None
    session: OpenSession | None = None
    sandbox_of_no_use: bool = False
    """The call has ended so that no other can follow it there."""
    ignored_globals: tuple[str, ...] = ()
    at_rest: bool = False
    """Nothing that the call began goes on in its session's sandbox."""
    layer: Layer | None = None
    packages: str | None = None
    failure: Failure | None = None
    value: Buffer = b""
    printed_bytes: int = 0
    yielded: int | None = None
