"""The worker's side of the talk with an executor. What comes from there is checked and never unpickled."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from readie.protocol.payload import Buffer
from workers.executor import wire
from workers.executor.wire import Frame, Kind, WireError
from workers.sandbox.conversation import Conversation, Deaf, Listener
from workers.sandbox.output import OutputPipe

_Message = TypeVar("_Message", bound="_FromExecutor")

DEFAULT_MAX_RESULT_BYTES = 1 << 30


class ConnectionLostError(Exception):
    """The executor's end of the connection is gone: its process, or the whole sandbox, has ended."""


class _FromExecutor(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Hello(_FromExecutor):
    """The executor's first frame. ``python`` is a full version; ``imported`` what its checkpoint holds."""

    wire: int
    python: str
    start: Literal["restored", "started"]
    imported: list[str]
    repair_seconds: float


class CallError(_FromExecutor):
    """Why a call has no value.

    ``raised`` by the function; ``deserialization``: its pickle needs something that the sandbox does not have;
    ``serialization``: what it returned can't be pickled.
    """

    code: Literal["raised", "serialization", "deserialization"]
    type: str
    module: str
    bases: list[str] = []
    """Qualified names of its class and of all that this is derived from."""
    message: str
    traceback: str


class ResultHeader(_FromExecutor):
    """The RESULT frame."""

    outcome: Literal["ok", "error"]
    load_seconds: float
    execute_seconds: float
    dump_seconds: float
    error: CallError | None
    ignored_globals: list[str] = []
    """Names that a function brought and that its session had with another value."""


@dataclass(frozen=True)
class CallResult:
    """How a call ended. ``value`` is a payload container of the value, or of the exception and then maybe empty."""

    header: ResultHeader
    value: Buffer

    @property
    def outcome(self) -> Literal["ok", "error"]:
        """Whether ``value`` holds the function's value or there is an ``error``."""
        return self.header.outcome

    @property
    def error(self) -> CallError | None:
        """What went wrong, or None."""
        return self.header.error


class ExecutorConnection:
    """A connection to one executor, for one call at a time. It is of no more use after any of its errors."""

    def __init__(self, connection: socket.socket, output: OutputPipe, *, deadline: float) -> None:
        """Read the greeting from ``connection``, which is then this object's to close.

        ``output`` is what the executor prints to. ``deadline`` is a ``time.monotonic()`` value. Raises
        ``ConnectionLostError``, ``WireError`` (also for another version of the wire protocol) or ``TimeoutError``.
        """
        self._connection = connection
        self._output = output
        self.address_space_bytes: int | None = None
        """What a process of the next calls may map beyond what it has mapped; ``None`` without limit."""
        self.layer: str | None = None
        """Folder in the sandbox with packages for the next calls."""
        try:
            self.hello = self._receive(Kind.HELLO, Hello, deadline)
            if self.hello.wire != wire.WIRE_VERSION:
                raise WireError(
                    f"the executor speaks wire version {self.hello.wire}, this worker {wire.WIRE_VERSION}; "
                    "build the flavor and its checkpoints again"
                )
        except BaseException:
            connection.close()
            raise

    def call(
        self,
        call_id: str,
        name: str,
        payload: Sequence[Buffer],
        *,
        timeout: float | None = None,
        max_result_bytes: int = DEFAULT_MAX_RESULT_BYTES,
        listener: Listener | None = None,
        session: bool = False,
    ) -> CallResult:
        """Run the call whose payload container is the joined ``payload`` and return how it ended.

        ``timeout`` seconds bound the whole, None does not; ``listener`` hears of what happens until then, all of it
        also when this raises. Raises ``TimeoutError`` (the function still runs: kill the sandbox), ``UnwantedError``
        (likewise), ``ConnectionLostError``, ``WireError``, ``FrameTooLargeError`` (a value or result above
        ``max_result_bytes``). In a ``session`` functions share one globals dict.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        listener = listener or Deaf()
        conversation = Conversation(self._connection, self._output, listener, deadline)
        head: dict[str, object] = {"id": call_id, "name": name, "session": session}
        if self.address_space_bytes is not None:
            head["address_space_bytes"] = self.address_space_bytes
        if listener.credit is not None:
            head["credit"] = asdict(listener.credit)
        if self.layer is not None:
            head["layer"] = self.layer
        try:
            wire.send_json_and_frame(self._connection, (Kind.CALL, head), (Kind.PAYLOAD, payload), deadline=deadline)
            header = _parse(conversation.until_result(max_result_bytes), ResultHeader)
            frame = wire.read_frame(self._connection, Kind.VALUE, max_bytes=max_result_bytes, deadline=deadline)
        except TimeoutError:
            raise
        except (OSError, wire.ConnectionEndedError) as error:
            raise ConnectionLostError(str(error)) from error
        finally:
            conversation.take_output()
        if (header.outcome == "ok") != (header.error is None):
            raise WireError(f"a RESULT frame has the outcome {header.outcome!r} but error is {header.error!r}")
        return CallResult(header, frame.payload)

    def close(self) -> None:
        """Close the connection; the executor ends then."""
        self._connection.close()

    def _receive(self, kind: Kind, model: type[_Message], deadline: float | None) -> _Message:
        try:
            return _parse(
                wire.read_frame(self._connection, kind, max_bytes=wire.MAX_JSON_BYTES, deadline=deadline), model
            )
        except TimeoutError:
            raise
        except wire.FrameTooLargeError as error:
            # What the executor sends is never that large: only a value may be.
            raise WireError(str(error)) from None
        except (OSError, wire.ConnectionEndedError) as error:
            raise ConnectionLostError(str(error)) from error


def _parse(frame: Frame, model: type[_Message]) -> _Message:
    try:
        return model.model_validate(wire.json_object(frame))
    except ValidationError as error:
        raise WireError(f"a {frame.kind.name} frame is not as agreed: {error}") from None
